//! How many requests each route answered, and how long that took until the head of the response.
//!
//! Invariant: the number of series is bounded by the number of routes, because a path is counted under the template of its
//! route, and all other paths together under `OTHER_ROUTE`. Counting takes no lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::shell::MetricsText;

/// The route of paths that no template fits.
const OTHER_ROUTE: &str = "other";

/// The upper bounds of the buckets, in seconds.
const BOUNDS_S: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counters of all routes.
#[derive(Debug)]
pub struct HttpMeter {
    tree: RouteTree,
    /// The counters of the templates; those of [`OTHER_ROUTE`] come last.
    routes: Vec<RouteCounters>,
}

#[derive(Debug)]
struct RouteCounters {
    template: String,
    by_class: [AtomicU64; CLASSES.len()],
    /// Responses within a bound and not within an earlier one.
    buckets: [AtomicU64; BOUNDS_S.len()],
    sum_us: AtomicU64,
}

/// The templates by their segments.
#[derive(Debug, Default)]
struct RouteTree {
    literal: HashMap<String, Self>,
    /// The branch of a parameter.
    any: Option<Box<Self>>,
    /// The number of the template that ends here.
    route: Option<usize>,
}

impl HttpMeter {
    /// The routes are those of an `OpenAPI` document.
    pub fn new(document: &Value) -> Self {
        let paths = document["paths"].as_object();
        let templates = paths.into_iter().flat_map(|paths| paths.keys());
        let mut tree = RouteTree::default();
        let mut routes = Vec::new();
        for template in templates {
            tree.add(template, routes.len());
            routes.push(RouteCounters::new(template));
        }
        routes.push(RouteCounters::new(OTHER_ROUTE));
        Self { tree, routes }
    }

    pub(crate) fn count(&self, path: &str, status: u16, took: Duration) {
        let Some(other) = self.routes.len().checked_sub(1) else {
            return;
        };
        let route = self.tree.find(path).unwrap_or(other);
        let Some(counters) = self.routes.get(route) else {
            return;
        };
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        counters.by_class[class].fetch_add(1, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        if let Some(bucket) = BOUNDS_S.iter().position(|bound| seconds <= *bound) {
            counters.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        counters.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Writes the routes that have answered something.
    pub fn write(&self, text: &mut MetricsText) {
        let used: Vec<(&RouteCounters, u64)> = self
            .routes
            .iter()
            .map(|route| (route, route.count()))
            .filter(|(_, count)| *count > 0)
            .collect();
        let name = "consign_http_requests_total";
        text.family(name, "counter", "Requests by route and class of status");
        for (route, _) in &used {
            for (class, count) in CLASSES.iter().zip(&route.by_class) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = [("route", route.template.as_str()), ("status", class)];
                    text.sample(name, &labels, count);
                }
            }
        }
        let name = "consign_http_request_duration_seconds";
        text.family(
            name,
            "histogram",
            "Time until the head of the response, by route; long polls wait in it",
        );
        for (route, count) in used {
            let labels = [("route", route.template.as_str())];
            let buckets = route.buckets.iter();
            let buckets = buckets.map(|bucket| bucket.load(Ordering::Relaxed));
            let sum_us = route.sum_us.load(Ordering::Relaxed);
            text.histogram(
                name,
                &labels,
                BOUNDS_S.into_iter().zip(buckets),
                sum_us,
                count,
            );
        }
    }
}

impl RouteCounters {
    fn new(template: &str) -> Self {
        Self {
            template: template.to_owned(),
            by_class: Default::default(),
            buckets: Default::default(),
            sum_us: AtomicU64::new(0),
        }
    }

    fn count(&self) -> u64 {
        let classes = self.by_class.iter();
        classes.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl RouteTree {
    fn add(&mut self, template: &str, route: usize) {
        let mut branch = self;
        for segment in template.split('/').skip(1) {
            branch = if segment.starts_with('{') {
                branch.any.get_or_insert_with(Box::default)
            } else {
                branch.literal.entry(segment.to_owned()).or_default()
            };
        }
        branch.route = Some(route);
    }

    /// A literal segment comes before a parameter, as in the router.
    fn find(&self, path: &str) -> Option<usize> {
        let Some(rest) = path.strip_prefix('/') else {
            return self.route;
        };
        let (segment, rest) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let literal = self.literal.get(segment);
        let literal = literal.and_then(|branch| branch.find(rest));
        literal.or_else(|| {
            let any = self.any.as_deref().filter(|_| !segment.is_empty());
            any?.find(rest)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_counts_under_the_template_of_its_route_and_others_together() {
        let paths = json!({"paths": {
            "/": {}, "/claim": {}, "/intents/{id}": {}, "/intents/{id}/timeline": {}, "/intents/next": {},
        }});
        let meter = HttpMeter::new(&paths);
        let took = Duration::from_millis(2);
        for path in ["/intents/a", "/intents/b", "/intents/next", "/claim", "/"] {
            meter.count(path, 200, took);
        }
        meter.count("/intents/a/timeline", 404, Duration::from_mins(1));
        for path in ["/intents/", "/intents/a/b", "/nowhere", ""] {
            meter.count(path, 404, took);
        }
        let mut text = MetricsText::default();
        meter.write(&mut text);
        let text = text.text();
        for line in [
            r#"consign_http_requests_total{route="/intents/{id}",status="2xx"} 2"#,
            r#"consign_http_requests_total{route="/intents/next",status="2xx"} 1"#,
            r#"consign_http_requests_total{route="/",status="2xx"} 1"#,
            r#"consign_http_requests_total{route="/intents/{id}/timeline",status="4xx"} 1"#,
            r#"consign_http_requests_total{route="other",status="4xx"} 4"#,
            r#"consign_http_request_duration_seconds_bucket{route="/intents/{id}",le="0.001"} 0"#,
            r#"consign_http_request_duration_seconds_bucket{route="/intents/{id}",le="0.0025"} 2"#,
            r#"consign_http_request_duration_seconds_bucket{route="/intents/{id}",le="+Inf"} 2"#,
            r#"consign_http_request_duration_seconds_sum{route="/intents/{id}"} 0.004"#,
            r#"consign_http_request_duration_seconds_bucket{route="/intents/{id}/timeline",le="30"} 0"#,
            r#"consign_http_request_duration_seconds_bucket{route="/intents/{id}/timeline",le="+Inf"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
