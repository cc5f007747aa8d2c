//! The protocol, as it is mounted in a server.

use std::fmt;

use axum::Router;
use axum::response::Response;
use consign_engine::{Error, Operator};
use consign_web::shell::{MetricsText, Mount, MountFuture, PartReport};
use serde_json::Value;

use super::{Options, on_too_many_failures, openapi, report, router};
use crate::site::Site;

pub struct SiteMount {
    site: Site,
    router: Router,
}

impl SiteMount {
    pub fn new(site: Site, options: Options) -> Self {
        Self {
            router: router(site.clone(), options),
            site,
        }
    }
}

impl fmt::Debug for SiteMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SiteMount")
    }
}

impl Mount for SiteMount {
    fn router(&self) -> Router {
        self.router.clone()
    }

    fn openapi(&self) -> Value {
        openapi::document()
    }

    fn public_keys(&self) -> Vec<Value> {
        self.site.jwks()
    }

    fn metrics<'a>(
        &'a self,
        operator: Operator,
        text: &'a mut MetricsText,
    ) -> MountFuture<'a, Result<(), Error>> {
        Box::pin(report::write_metrics(&self.site, operator, text))
    }

    fn report(
        &self,
        _: Operator,
    ) -> MountFuture<'_, Result<Option<(&'static str, PartReport)>, Error>> {
        Box::pin(async {
            let report = report::report(&self.site).await?;
            Ok(Some(("transactions", report)))
        })
    }

    fn is_path_of(&self, path: &str) -> bool {
        path.starts_with("/api/atp/")
    }

    fn on_too_many_failures(&self) -> Response {
        on_too_many_failures()
    }
}
