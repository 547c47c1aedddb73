//! OTLP as the standard variables set it (OpenTelemetry specification, "SDK environment variables"
//! and "OTLP exporter"). The SDK itself reads the variables of the queue, batches, time-outs and
//! headers.

use opentelemetry_otlp::SpanExporter;
#[cfg(feature = "otlp-grpc")]
use opentelemetry_otlp::{WithTonicConfig, tonic_types::transport::ClientTlsConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    #[cfg(feature = "otlp-grpc")]
    Grpc,
    Http,
}

/// Environment variables that the exporter reads.
#[derive(Debug)]
pub(super) struct Settings {
    protocol: Protocol,
    sampler: Sampler,
    service: Option<String>,
    /// GenAI conventions are asked for.
    pub(super) gen_ai: bool,
}

impl Settings {
    /// None where nothing is to be exported.
    ///
    /// # Errors
    /// A sentence that names the variable.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        // An empty variable is one that is not set.
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| get(name).map(|value| (name, value)))
        };
        let disabled =
            get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let wanted =
            first(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]).is_some();
        match get("OTEL_TRACES_EXPORTER").as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                return Err(format!("OTEL_TRACES_EXPORTER can be otlp or none, and not {other}"));
            }
        }
        if disabled || !wanted {
            return Ok(None);
        }
        let named = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
        let protocol = match first(named) {
            #[cfg(feature = "otlp-grpc")]
            Some((_, value)) if value == "grpc" => Protocol::Grpc,
            #[cfg(not(feature = "otlp-grpc"))]
            Some((name, value)) if value == "grpc" => {
                return Err(format!(
                    "{name}: this build has no grpc (feature otlp-grpc), only http/protobuf"
                ));
            }
            Some((name, value)) if value != "http/protobuf" => {
                return Err(format!("{name} can be http/protobuf or grpc, and not {value}"));
            }
            _ => Protocol::Http,
        };
        let sampler = sampler(
            get("OTEL_TRACES_SAMPLER").as_deref(),
            get("OTEL_TRACES_SAMPLER_ARG").as_deref(),
        )?;
        let in_attributes = get("OTEL_RESOURCE_ATTRIBUTES")
            .is_some_and(|all| all.split(',').any(|one| one.trim().starts_with("service.name=")));
        let service =
            get("OTEL_SERVICE_NAME").or_else(|| (!in_attributes).then(|| "handoffd".to_owned()));
        let gen_ai = get("OTEL_SEMCONV_STABILITY_OPT_IN").is_some_and(|all| {
            all.split(',').any(|one| one.trim() == "gen_ai_latest_experimental")
        });
        Ok(Some(Self { protocol, sampler, service, gen_ai }))
    }
}

/// `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`. A typing mistake does not pass for a default.
fn sampler(name: Option<&str>, arg: Option<&str>) -> Result<Sampler, String> {
    let ratio = || match arg.map(str::parse::<f64>) {
        None => Ok(1.0),
        Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        Some(_) => Err("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1".to_owned()),
    };
    let by_parent = |root| Sampler::ParentBased(Box::new(root));
    Ok(match name.unwrap_or("parentbased_always_on") {
        "always_on" => Sampler::AlwaysOn,
        "always_off" => Sampler::AlwaysOff,
        "traceidratio" => Sampler::TraceIdRatioBased(ratio()?),
        "parentbased_always_on" => by_parent(Sampler::AlwaysOn),
        "parentbased_always_off" => by_parent(Sampler::AlwaysOff),
        "parentbased_traceidratio" => by_parent(Sampler::TraceIdRatioBased(ratio()?)),
        other => {
            return Err(format!(
                "OTEL_TRACES_SAMPLER can be always_on, always_off, traceidratio, or one of these \
                 after parentbased_, and not {other}"
            ));
        }
    })
}

/// The exporter behind a bounded queue that drops what it has no room for: a collector that is away
/// holds nothing up. Within a runtime, for gRPC works on it.
pub(super) fn provider(settings: &Settings) -> Result<SdkTracerProvider, String> {
    let builder = SpanExporter::builder();
    let exporter = match settings.protocol {
        Protocol::Http => builder.with_http().build(),
        #[cfg(feature = "otlp-grpc")]
        Protocol::Grpc => builder
            .with_tonic()
            .with_tls_config(ClientTlsConfig::new().with_enabled_roots())
            .build(),
    }
    .map_err(|err| format!("the OTLP exporter cannot be built: {err}"))?;
    let mut resource = Resource::builder()
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if let Some(name) = &settings.service {
        resource = resource.with_service_name(name.clone());
    }
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(settings.sampler.clone())
        .with_resource(resource.build())
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::read(|name| {
            variables.iter().find(|one| one.0 == name).map(|one| one.1.to_owned())
        })
    }

    const AT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    #[test]
    fn spans_go_where_the_standard_variables_say_and_else_nowhere() {
        for nowhere in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[AT, ("OTEL_SDK_DISABLED", "true")],
            &[AT, ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            assert!(read(nowhere).unwrap().is_none(), "{nowhere:?}");
        }
        let protocol =
            |more: &[(&str, &str)]| read(&[&[AT][..], more].concat()).unwrap().unwrap().protocol;
        assert_eq!(protocol(&[]), Protocol::Http);
        assert_eq!(protocol(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]), Protocol::Http);
    }

    #[cfg(feature = "otlp-grpc")]
    #[test]
    fn spans_go_over_grpc_where_that_is_asked_for() {
        let protocol =
            |more: &[(&str, &str)]| read(&[&[AT][..], more].concat()).unwrap().unwrap().protocol;
        assert_eq!(protocol(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), Protocol::Grpc);
        let both = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ];
        assert_eq!(protocol(&both), Protocol::Grpc);
    }

    #[cfg(not(feature = "otlp-grpc"))]
    #[test]
    fn a_build_without_grpc_says_so() {
        let why = read(&[AT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err();
        assert!(why.contains("OTEL_EXPORTER_OTLP_PROTOCOL") && why.contains("otlp-grpc"), "{why}");
    }

    #[test]
    fn a_value_that_does_not_fit_is_named() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "carrier pigeon"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
        ] {
            let why = read(&[AT, (name, value)]).unwrap_err();
            assert!(why.contains(name) && why.contains(value), "{why}");
        }
        for arg in ["1.1", "-0.1", "NaN", "1 %"] {
            let why = read(&[
                AT,
                ("OTEL_TRACES_SAMPLER", "traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", arg),
            ]);
            assert!(why.unwrap_err().contains("OTEL_TRACES_SAMPLER_ARG"), "{arg}");
        }
    }

    #[test]
    fn the_sampler_is_the_one_named() {
        let named = |name: &str, arg| format!("{:?}", sampler(Some(name), arg).unwrap());
        assert_eq!(
            format!("{:?}", sampler(None, None).unwrap()),
            named("parentbased_always_on", None)
        );
        assert_eq!(named("always_off", None), "AlwaysOff");
        assert_eq!(named("traceidratio", Some("0.01")), "TraceIdRatioBased(0.01)");
        assert_eq!(
            named("parentbased_traceidratio", Some("0.5")),
            "ParentBased(TraceIdRatioBased(0.5))"
        );
    }

    #[test]
    fn the_agent_conventions_are_for_who_asks() {
        let asked =
            |value| read(&[AT, ("OTEL_SEMCONV_STABILITY_OPT_IN", value)]).unwrap().unwrap().gen_ai;
        assert!(asked("gen_ai_latest_experimental"));
        assert!(asked("http, gen_ai_latest_experimental"));
        assert!(!asked("http"));
        assert!(!read(&[AT]).unwrap().unwrap().gen_ai);
    }
}
