//! The figures that a training run publishes.

use reverie_core::{Error, Result};
use serde_json::{Map, Value};

/// Bytes of a document at most.
const MOST_BYTES: usize = 64 << 10;
/// Points of a curve, and activities, at most.
const MOST_POINTS: usize = 1000;
const MOST_ACTIVITIES: usize = 64;
/// Seeds, shards, and tables of a shard, at most.
const MOST_PARTS: usize = 64;
/// Bytes of a text at most. Some texts are labels of metrics.
const MOST_TEXT: usize = 1000;

/// The kind of a field. All but counts and names may be missing or null, and are shown as null then.
#[derive(Clone, Copy, PartialEq)]
enum FieldKind {
    Name,
    Count,
    Text,
    Number,
    Bool,
    Curve,
    Activities,
    Chances,
    /// Objects of these fields.
    Parts(&'static [Field]),
}

type Field = (&'static str, FieldKind);

/// The fields of one of several runs that differ in their seeds.
const SEED: [Field; 6] = [
    ("seed", FieldKind::Count),
    ("state", FieldKind::Text),
    ("env_steps", FieldKind::Number),
    ("updates", FieldKind::Number),
    ("confirmed", FieldKind::Bool),
    ("curve", FieldKind::Curve),
];

/// The fields of one of several servers that are one replay.
const SHARD: [Field; 8] = [
    ("address", FieldKind::Text),
    ("present", FieldKind::Bool),
    ("problem", FieldKind::Text),
    ("items", FieldKind::Number),
    ("bytes", FieldKind::Number),
    ("reconnects", FieldKind::Number),
    ("restarts", FieldKind::Number),
    ("chances", FieldKind::Chances),
];

/// All fields of a document.
const FIELDS: [Field; 18] = [
    ("agent", FieldKind::Name),
    ("env", FieldKind::Name),
    ("env_steps", FieldKind::Count),
    ("updates", FieldKind::Count),
    ("seed", FieldKind::Number),
    ("runner", FieldKind::Text),
    ("max_env_steps", FieldKind::Number),
    ("seconds", FieldKind::Number),
    ("target_return", FieldKind::Number),
    ("confirmed", FieldKind::Bool),
    ("training_return", FieldKind::Number),
    ("samples_per_insert", FieldKind::Number),
    ("policy_age_updates", FieldKind::Number),
    ("waits_for", FieldKind::Text),
    ("curve", FieldKind::Curve),
    ("activities", FieldKind::Activities),
    ("seeds", FieldKind::Parts(&SEED)),
    ("shards", FieldKind::Parts(&SHARD)),
];

/// The figures of a run, checked.
#[derive(Debug)]
pub(super) struct RunFigures {
    /// The document of `GET /api/run`.
    pub(super) document: Value,
    pub(super) agent: String,
    pub(super) env: String,
    pub(super) env_steps: u64,
    pub(super) updates: u64,
    /// The last point of the curve.
    pub(super) greedy_return: Option<f64>,
    /// Updates by which the acting policies are behind the learner's.
    pub(super) policy_age: Option<f64>,
}

impl RunFigures {
    /// Checks a document. `InvalidArgument` names the field that is missing, unknown, invalid or too large.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if text.len() > MOST_BYTES {
            return Err(refused(&format!("must have at most {MOST_BYTES} bytes as JSON, got {}", text.len())));
        }
        let given = match serde_json::from_str(text) {
            Ok(Value::Object(given)) => given,
            Ok(_) => return Err(refused("must be an object")),
            Err(error) => return Err(refused(&format!("must be JSON: {error}"))),
        };
        let document = whole(&given, &FIELDS, "")?;
        let points: usize = document["seeds"].as_array().into_iter().flatten().map(|of| num_points(&of["curve"])).sum();
        if points > MOST_POINTS {
            return Err(refused(&format!("must have at most {MOST_POINTS} points in all 'seeds', got {points}")));
        }
        let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
        let count = |name: &str| document[name].as_u64().unwrap_or_default();
        Ok(Self {
            agent: text("agent"),
            env: text("env"),
            env_steps: count("env_steps"),
            updates: count("updates"),
            greedy_return: document["curve"].as_array().and_then(|curve| curve.last()?.get(2)?.as_f64()),
            policy_age: document["policy_age_updates"].as_f64(),
            document: Value::Object(document),
        })
    }
}

fn refused(why: &str) -> Error {
    Error::InvalidArgument(format!("the figures of a run {why}"))
}

/// All fields of an object, null where none was given. `of` is the name of the list that it is in.
fn whole(given: &Map<String, Value>, fields: &'static [Field], of: &str) -> Result<Map<String, Value>> {
    let inside = if of.is_empty() { String::new() } else { format!(" in '{of}'") };
    if let Some(unknown) = given.keys().find(|name| fields.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        return Err(refused(&format!("have no '{unknown}'{inside}; they may have {}", known.join(", "))));
    }
    let mut all = Map::new();
    for (name, kind) in fields {
        let value = given.get(*name).unwrap_or(&Value::Null);
        check(name, *kind, value, &inside)?;
        let value = match (kind, value) {
            (FieldKind::Parts(fields), Value::Array(parts)) => {
                let parts = parts.iter().filter_map(Value::as_object).map(|part| whole(part, fields, name));
                Value::Array(parts.map(|part| part.map(Value::Object)).collect::<Result<_>>()?)
            }
            _ => value.clone(),
        };
        all.insert((*name).to_owned(), value);
    }
    Ok(all)
}

fn num_points(curve: &Value) -> usize {
    curve.as_array().map_or(0, Vec::len)
}

fn check(name: &str, kind: FieldKind, value: &Value, inside: &str) -> Result<()> {
    if value.is_null() && !matches!(kind, FieldKind::Name | FieldKind::Count) {
        return Ok(());
    }
    let (fits, wanted) = match kind {
        FieldKind::Name | FieldKind::Text => {
            (value.as_str().is_some_and(|text| text.len() <= MOST_TEXT), format!("text of at most {MOST_TEXT} bytes"))
        }
        FieldKind::Count => (value.is_u64(), "a whole number from 0 on".to_owned()),
        FieldKind::Number => (value.is_number(), "a number".to_owned()),
        FieldKind::Bool => (value.is_boolean(), "true or false".to_owned()),
        FieldKind::Curve => (
            value.as_array().is_some_and(|curve| curve.len() <= MOST_POINTS && curve.iter().all(is_point)),
            format!("at most {MOST_POINTS} points [env_steps, seconds, mean_return]"),
        ),
        FieldKind::Activities => (
            value.as_object().is_some_and(|of| of.len() <= MOST_ACTIVITIES && of.values().all(Value::is_number)),
            format!("the seconds of at most {MOST_ACTIVITIES} activities"),
        ),
        FieldKind::Chances => (
            value.as_object().is_some_and(|of| {
                of.len() <= MOST_PARTS && of.values().all(|chance| chance.is_null() || chance.is_number())
            }),
            format!("a number for each of at most {MOST_PARTS} tables"),
        ),
        FieldKind::Parts(_) => (
            value.as_array().is_some_and(|parts| parts.len() <= MOST_PARTS && parts.iter().all(Value::is_object)),
            format!("at most {MOST_PARTS} objects"),
        ),
    };
    if fits {
        return Ok(());
    }
    let mut got = value.to_string();
    if got.len() > 100 {
        got = format!("{} bytes of other JSON", got.len());
    }
    Err(refused(&format!("must have '{name}'{inside} as {wanted}, got {got}")))
}

fn is_point(point: &Value) -> bool {
    point.as_array().is_some_and(|point| point.len() == 3 && point.iter().all(Value::is_number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn least() -> Map<String, Value> {
        let Value::Object(least) = json!({"agent": "dqn", "env": "CartPole-v1", "env_steps": 3, "updates": 0}) else {
            unreachable!()
        };
        least
    }

    fn parsed(name: &str, value: Value) -> Result<RunFigures> {
        let mut document = least();
        document.insert(name.to_owned(), value);
        RunFigures::parse(&Value::Object(document).to_string())
    }

    #[test]
    fn a_document_has_all_fields_and_null_for_those_that_were_not_given() {
        let run = RunFigures::parse(&Value::Object(least()).to_string()).unwrap();
        assert_eq!(run.document.as_object().unwrap().len(), FIELDS.len());
        assert_eq!(run.document["env_steps"], 3);
        assert!(run.document["curve"].is_null());
        assert_eq!((run.agent.as_str(), run.env_steps, run.greedy_return), ("dqn", 3, None));
    }

    #[test]
    fn the_greedy_return_is_that_of_the_last_point() {
        let run = parsed("curve", json!([[10, 0.5, 9.0], [20, 1.5, -7.5]])).unwrap();
        assert_eq!(run.greedy_return, Some(-7.5));
    }

    #[test]
    fn each_field_is_refused_by_its_name_when_it_is_invalid_or_too_large() {
        let long = "x".repeat(MOST_TEXT + 1);
        let points = vec![json!([1, 2, 3]); MOST_POINTS + 1];
        let activities: Map<_, _> = (0..=MOST_ACTIVITIES).map(|n| (n.to_string(), json!(1))).collect();
        for (name, value) in [
            ("agent", Value::Null),
            ("agent", json!(long)),
            ("env", json!(3)),
            ("env_steps", json!(-1)),
            ("updates", json!(1.5)),
            ("seconds", json!("1")),
            ("confirmed", json!(1)),
            ("curve", json!([[1, 2]])),
            ("curve", json!([[1, 2, null]])),
            ("curve", json!(points)),
            ("activities", json!({"act": "long"})),
            ("activities", Value::Object(activities)),
            ("loss", json!(0.5)),
            ("seeds", json!([3])),
            ("seeds", json!([{"seed": -1}])),
            ("seeds", json!([{"seed": 1, "loss": 2}])),
            ("seeds", Value::Array(vec![json!({"seed": 1, "curve": vec![json!([1, 2, 3]); 400]}); 3])),
            ("shards", json!(vec![json!({}); MOST_PARTS + 1])),
            ("shards", json!([{"chances": {"replay": "all"}}])),
        ] {
            let error = parsed(name, value.clone()).unwrap_err().to_string();
            assert!(error.contains(&format!("'{name}'")), "{name}: {error}");
            assert!(error.len() < 400, "{error}");
        }
    }

    #[test]
    fn a_part_has_all_its_fields_and_its_error_names_the_field_in_it() {
        let run = parsed("shards", json!([{"present": true, "chances": {"replay": 0.25, "other": null}}])).unwrap();
        let shard = run.document["shards"][0].as_object().unwrap();
        assert_eq!(
            (shard.len(), &shard["address"], &shard["chances"]["replay"]),
            (SHARD.len(), &Value::Null, &json!(0.25))
        );
        let error = parsed("seeds", json!([{"seed": 1}, {"seed": 2, "curve": 3}])).unwrap_err().to_string();
        assert!(error.contains("'curve' in 'seeds' as at most 1000 points"), "{error}");
    }

    #[test]
    fn a_document_that_is_too_large_or_no_object_is_refused() {
        let large = format!("{{\"agent\":\"{}\"}}", " ".repeat(MOST_BYTES));
        for (text, words) in
            [(large.as_str(), "65536 bytes"), ("[]", "an object"), ("{", "JSON"), ("{\"a\":NaN}", "JSON")]
        {
            let error = RunFigures::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
