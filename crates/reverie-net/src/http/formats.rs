//! The two text formats of metrics: OpenMetrics 1.0, and the older one of Prometheus, 0.0.4.

use std::fmt::Write;

/// The versions of OpenMetrics whose readers understand what is written.
const WRITTEN: [&str; 2] = ["1.0.0", "0.0.1"];

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0, for a reader that asks for it.
    OpenMetrics,
    /// Version 0.0.4 of Prometheus' format, which every reader of metrics supports.
    Text,
}

impl Format {
    /// The format that an `Accept` header prefers; empty without one.
    pub(super) fn wanted(accept: &str) -> Self {
        let (mut open, mut named, mut any) = (0.0, None, 0.0);
        for range in accept.split(',').map(MediaRange::parse) {
            match range.media_type.as_str() {
                "application/openmetrics-text" if range.version.is_none_or(|version| WRITTEN.contains(&version)) => {
                    open = range.quality.max(open);
                }
                "text/plain" => named = Some(range.quality.max(named.unwrap_or(0.0))),
                "text/*" | "*/*" => any = range.quality.max(any),
                _ => {}
            }
        }
        if open > 0.0 && open >= named.unwrap_or(any) { Self::OpenMetrics } else { Self::Text }
    }

    /// The media type of a response.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// An exposition of OpenMetrics in this format.
    pub(super) fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => text(&open_metrics),
        }
    }
}

/// A media type that a reader accepts.
struct MediaRange<'a> {
    media_type: String,
    version: Option<&'a str>,
    /// 0 if it is not accepted, or malformed.
    quality: f64,
}

impl<'a> MediaRange<'a> {
    fn parse(range: &'a str) -> Self {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut parsed = Self { media_type, version: None, quality: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" => parsed.quality = value.trim().parse().unwrap_or(0.0),
                "version" => parsed.version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        parsed
    }
}

/// The format 0.0.4 has a family's name with the suffix of its samples, no type `info`, and no end mark.
fn text(open_metrics: &str) -> String {
    let (mut out, mut help) = (String::with_capacity(open_metrics.len() + 1024), "");
    for line in open_metrics.lines() {
        if let Some(after) = line.strip_prefix("# HELP ") {
            help = after.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|after| after.rsplit_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            // Writing to text does not fail.
            let _ = writeln!(out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
        } else if line != "# EOF" {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_readers_that_ask_for_it_and_do_not_prefer_the_other() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;\
                          q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html, */*;q=0.8", Format::Text),
            ("text/plain;version=0.0.4", Format::Text),
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; version=\"1.0.0\"", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.3,text/plain;q=0.5", Format::Text),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.4, */*", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            ("application/openmetrics-text;q=high", Format::Text),
        ] {
            assert_eq!(Format::wanted(accept), format, "{accept}");
        }
    }

    #[test]
    fn the_older_format_names_a_family_as_its_samples() {
        let open_metrics = "# HELP a Words of a\n# TYPE a counter\na_total{t=\"# EOF\"} 1.0\n# HELP b Words\n\
                            # TYPE b info\nb_info{v=\"1\"} 1\n# HELP c_x Words\n# TYPE c_x gauge\nc_x 2\n\
                            # HELP d D\n# TYPE d histogram\nd_sum 1.0\nd_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let expected = "# HELP a_total Words of a\n# TYPE a_total counter\na_total{t=\"# EOF\"} 1.0\n\
                        # HELP b_info Words\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# HELP c_x Words\n\
                        # TYPE c_x gauge\nc_x 2\n# HELP d D\n# TYPE d histogram\nd_sum 1.0\nd_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(Format::Text.of(open_metrics.to_owned()), expected);
        assert_eq!(Format::OpenMetrics.of(open_metrics.to_owned()), open_metrics);
    }
}
