//! Maps values to positions in the picture, and chooses the labelled values.
//!
//! Invariant: an axis never has an empty range, so a position is always a number.

#[derive(Debug, Clone, Copy)]
enum Scale {
    Linear,
    Decades,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    scale: Scale,
    values: (f64, f64),
    places: (f64, f64),
}

impl Axis {
    pub(super) fn linear(values: (f64, f64), places: (f64, f64)) -> Self {
        Self {
            scale: Scale::Linear,
            values: (values.0, values.1.max(values.0 + f64::EPSILON)),
            places,
        }
    }

    /// Whole powers of ten around the values.
    pub(super) fn decades((low, high): (f64, f64), places: (f64, f64)) -> Self {
        let low = 10_f64.powf(low.max(1e-3).log10().floor());
        let high = 10_f64.powf(high.max(1e-3).log10().ceil());
        Self {
            scale: Scale::Decades,
            values: (low, high.max(low * 10.0)),
            places,
        }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let (from, to) = self.values;
        let share = match self.scale {
            Scale::Linear => (value - from) / (to - from),
            Scale::Decades => (value.max(from) / from).log10() / (to / from).log10(),
        };
        self.places.0 + share * (self.places.1 - self.places.0)
    }

    /// About five round values on a linear axis, each power of ten on a logarithmic one.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let (from, to) = self.values;
        let mut ticks = Vec::new();
        match self.scale {
            Scale::Linear => {
                let step = round_step((to - from) / 5.0);
                let mut count = 0.0;
                while from + count * step <= to * (1.0 + 1e-9) {
                    // Sums of decimal fractions have rounding digits.
                    ticks.push(((from + count * step) * 1e6).round() / 1e6);
                    count += 1.0;
                }
            }
            Scale::Decades => {
                let mut value = from;
                while value <= to * 1.01 {
                    ticks.push((value * 1e3).round() / 1e3);
                    value *= 10.0;
                }
            }
        }
        ticks
    }
}

/// The next of 1, 2, 5, 10, 20, 50, … above `step`.
fn round_step(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * decade);
    let next = steps.into_iter().find(|candidate| *candidate >= step);
    next.unwrap_or(10.0 * decade)
}

/// Two axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlotFrame {
    pub(super) across: Axis,
    pub(super) up: Axis,
}

impl PlotFrame {
    pub(super) fn at(&self, across: f64, up: f64) -> (f64, f64) {
        (self.across.place(across), self.up.place(up))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(
            Axis::linear((0.0, 10.0), (0.0, 1.0)).ticks(),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(
            Axis::linear((0.0, 1.0), (0.0, 1.0)).ticks(),
            [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        );
        assert_eq!(
            Axis::decades((120.0, 9_000.0), (0.0, 1.0)).ticks(),
            [100.0, 1_000.0, 10_000.0]
        );
    }

    #[test]
    fn places_follow_the_scale_even_without_a_range() {
        let axis = Axis::decades((1.0, 100.0), (300.0, 100.0));
        assert!((axis.place(10.0) - 200.0).abs() < 1e-9);
        assert!(Axis::linear((0.0, 0.0), (0.0, 1.0)).place(0.0).is_finite());
        assert!(Axis::decades((0.0, 0.0), (0.0, 1.0)).place(0.0).is_finite());
    }
}
