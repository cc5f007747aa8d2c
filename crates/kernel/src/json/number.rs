//! What number tokens are worth, and how ECMAScript prints a double.
//!
//! Invariant: a token is never rounded behind the caller's back; what does not fit is `None`.
//! Callers pass tokens of well-formed JSON only.

use std::fmt::Write as _;

/// The largest integer that a double and all its neighbours hold exactly.
pub(super) const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// The nearest double, unless it is infinite.
pub(super) fn finite(token: &str) -> Option<f64> {
    token.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Written without fraction and exponent.
pub(super) fn is_plain(token: &str) -> bool {
    !token.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
}

/// The value of the token if it is exactly an integer that fits.
pub(super) fn exact_integer(token: &str) -> Option<i64> {
    let (negative, unsigned) = match token.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, token),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

    let digits = || whole.bytes().chain(fraction.bytes());
    let trailing_zeros = digits().rev().take_while(|&digit| digit == b'0').count();
    let significant = whole.len() + fraction.len() - trailing_zeros;
    if significant == 0 {
        return Some(0);
    }
    let magnitude = digits().take(significant).try_fold(0_i128, |sum, digit| {
        sum.checked_mul(10)?.checked_add(i128::from(digit - b'0'))
    })?;

    // An exponent too long for i64 is far outside what any digits that fit could balance.
    let shift = exponent.parse::<i64>().ok()?;
    let shift = shift
        .checked_add(i64::try_from(trailing_zeros).ok()?)?
        .checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let scale = 10_i128.checked_pow(u32::try_from(shift).ok()?)?;
    let magnitude = magnitude.checked_mul(scale)?;
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Appends a finite double the way ECMAScript's `Number::toString` prints it.
///
/// Panics if `value` is infinite or not a number: JSON has no form for those.
pub fn write_ecmascript(value: f64, out: &mut String) {
    if value == 0.0 {
        // Negative zero prints without its sign.
        out.push('0');
        return;
    }
    let shortest = shortest(value);
    let (mantissa, exponent) = shortest.split_once('e').expect("exponent form has an e");
    let exponent: i32 = exponent.parse().expect("exponent form ends in an integer");
    let mantissa = match mantissa.strip_prefix('-') {
        Some(unsigned) => {
            out.push('-');
            unsigned
        }
        None => mantissa,
    };
    let (first, rest) = mantissa.split_at(1);
    let rest = rest.strip_prefix('.').unwrap_or("");

    match exponent {
        0..=20 => {
            let whole = usize::try_from(exponent).expect("not negative");
            out.push_str(first);
            if rest.len() <= whole {
                out.push_str(rest);
                push_zeros(out, whole - rest.len());
            } else {
                out.push_str(&rest[..whole]);
                out.push('.');
                out.push_str(&rest[whole..]);
            }
        }
        -6..=-1 => {
            out.push_str("0.");
            push_zeros(out, usize::try_from(-exponent - 1).expect("not negative"));
            out.push_str(first);
            out.push_str(rest);
        }
        _ => {
            out.push_str(first);
            if !rest.is_empty() {
                out.push('.');
                out.push_str(rest);
            }
            write!(out, "e{exponent:+}").expect("a String takes every write");
        }
    }
}

/// The fewest digits that read back as `value`; of those the closest; of two the even one.
fn shortest(value: f64) -> String {
    // Rust's own shortest form does all that except for ties, where it rounds up. Rounding the
    // exact value to as many digits settles ties to even. Just above a power of two that may
    // leave the interval of the double, and then Rust's form was the only one of its length.
    let shortest = format!("{value:e}");
    let digits = shortest.bytes().take_while(|&byte| byte != b'e');
    let precision = digits.filter(u8::is_ascii_digit).count() - 1;
    let rounded = format!("{value:.precision$e}");
    if rounded.parse() == Ok(value) {
        rounded
    } else {
        shortest
    }
}

fn push_zeros(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n('0', count));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn printed(value: f64) -> String {
        let mut out = String::new();
        write_ecmascript(value, &mut out);
        out
    }

    #[test]
    fn doubles_print_as_the_appendix_of_rfc_8785_says() {
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            assert_eq!(printed(f64::from_bits(bits)), expected, "{bits:016x}");
        }
        // A power of two: the nearest sixteen digits lie outside its narrower lower interval.
        assert_eq!(printed(2_f64.powi(-44)), "5.684341886080802e-14");
        assert_eq!(printed(1e-7), "1e-7");
        assert_eq!(printed(123e-20), "1.23e-18");
        assert_eq!(printed(100.0), "100");
        assert_eq!(printed(-4.5), "-4.5");
    }

    #[test]
    fn integers_are_exact_however_they_are_written() {
        for (token, expected) in [
            ("0", Some(0)),
            ("-0.000e999999999999999999999", Some(0)),
            ("3.0", Some(3)),
            ("1e2", Some(100)),
            ("1.25E+2", Some(125)),
            ("-1200e-2", Some(-12)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("1e18", Some(1_000_000_000_000_000_000)),
            ("1e19", None),
            ("0.5", None),
            ("1e-1", None),
            ("1e999999999999999999999", None),
            ("1e-999999999999999999999", None),
            (
                "123456789012345678901234567890123456789012345678901234567890",
                None,
            ),
        ] {
            assert_eq!(exact_integer(token), expected, "{token}");
        }
    }

    proptest! {
        #[test]
        fn every_printed_double_reads_back_as_itself(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite() && value != 0.0);
            let read: f64 = printed(value).parse().unwrap();
            prop_assert_eq!(read.to_bits(), bits);
        }

        #[test]
        fn every_integer_token_reads_back_as_itself(value: i64) {
            prop_assert_eq!(exact_integer(&value.to_string()), Some(value));
        }
    }
}
