//! The structured writer against definitions that look at everything again, over random programs.

use super::support;
use super::support::cases::cases;
use super::support::spec;
use proptest::prelude::*;
use reverie_core::append::{
    ColumnCells, Config, ConfigNode, CreatedItems, PriorityRule, Quantity, Relation, StepCondition, StructuredWriter,
};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::error::{Error, Result};
use reverie_core::item;
use reverie_core::spec::{ColumnSpec, DType, Structure};
use reverie_core::table::Priority;
use std::sync::Arc;

/// The fields of every step here: two that patterns take, one for conditions, one of td errors; int64, float64 the
/// last.
const FIELDS: [&str; 4] = ["a", "b", "flag", "td"];

fn field_spec(field: usize) -> ColumnSpec {
    spec(FIELDS[field], if field == 3 { DType::Float64 } else { DType::Int64 }, &[])
}

type Values = [Option<i64>; 4];

#[derive(Clone, Debug)]
enum Op {
    Append { values: Values, partial: bool },
    End { clear: bool },
}

fn writer(configs: &[Config]) -> Result<StructuredWriter> {
    let fields = FIELDS.map(str::to_owned).to_vec();
    StructuredWriter::new(Arc::new(Meter::default()), Compression::None, fields, configs.to_vec())
}

fn append(writer: &mut StructuredWriter, values: &Values, partial: bool) -> Result<CreatedItems> {
    let fields: Vec<usize> = (0..4).filter(|field| values[*field].is_some() && writer.wants(*field)).collect();
    writer.resolve(&fields, &fields.iter().map(|field| field_spec(*field)).collect::<Vec<_>>())?;
    let bytes = |field: &usize| match (field, values[*field].unwrap()) {
        (3, value) => (value as f64).to_ne_bytes(),
        (_, value) => value.to_ne_bytes(),
    };
    let bytes: Vec<[u8; 8]> = fields.iter().map(bytes).collect();
    let cells: Vec<ColumnCells<'_>> = bytes.iter().map(|bytes| ColumnCells { itemsize: 8, bytes }).collect();
    writer.append(&fields, &cells, partial)
}

/// The content of a created item: its config, its columns' values, its priority.
type SeenItem = (usize, Vec<Vec<i64>>, f64);

fn seen(makes: &CreatedItems, configs: &[Config]) -> Vec<SeenItem> {
    let read = |item: &item::Item, column: usize, index: usize| {
        let bytes: [u8; 8] = support::cell(item, column, index).try_into().unwrap();
        match item.pattern.columns[column].spec.dtype {
            DType::Float64 => f64::from_ne_bytes(bytes) as i64,
            _ => i64::from_ne_bytes(bytes),
        }
    };
    let one = |made: &reverie_core::append::CreatedItem| {
        made.item.check().unwrap();
        let nodes = &configs[made.config].nodes;
        assert_eq!(made.item.pattern.columns.len(), nodes.len());
        let columns = (0..nodes.len()).map(|column| {
            let of = &made.item.pattern.columns[column];
            assert_eq!((of.squeeze, of.spec.shape.len()), (nodes[column].squeeze, 0));
            (0..of.cells.len()).map(|index| read(&made.item, column, index)).collect()
        });
        let Priority::Value(priority) = made.priority else { panic!("a priority of its own") };
        (made.config, columns.collect(), priority)
    };
    makes.iter().map(one).collect()
}

/// All steps there ever were; everything else is looked up.
#[derive(Default)]
struct Model {
    steps: Vec<Values>,
    open: bool,
    /// The first step that items may refer to, and the first of the episode.
    base: usize,
    episode: usize,
    /// The steps that each config made an item of.
    applied: Vec<Vec<usize>>,
}

impl Model {
    fn run(&mut self, op: &Op, configs: &[Config]) -> Vec<SeenItem> {
        self.applied.resize(configs.len(), Vec::new());
        match op {
            Op::Append { values, partial } => {
                if !self.open {
                    self.steps.push([None; 4]);
                }
                let step = self.steps.last_mut().unwrap();
                for (known, value) in step.iter_mut().zip(values) {
                    *known = known.or(*value);
                }
                self.open = *partial;
                self.apply(configs, false)
            }
            Op::End { clear } => {
                let seen = if self.steps.len() > self.episode { self.apply(configs, true) } else { Vec::new() };
                self.open = false;
                self.episode = self.steps.len();
                if *clear {
                    self.base = self.steps.len();
                }
                seen
            }
        }
    }

    fn apply(&mut self, configs: &[Config], ending: bool) -> Vec<SeenItem> {
        let mut all = Vec::new();
        for (index, config) in configs.iter().enumerate() {
            let latest = self.steps.len() - 1;
            if self.applied[index].contains(&latest) || !config.conditions.iter().all(|c| self.holds(index, c, ending))
            {
                continue;
            }
            let columns: Option<Vec<Vec<i64>>> = config
                .nodes
                .iter()
                .map(|node| node.cells.iter().map(|cell| self.cell(node.field, latest as i64 + cell)).collect())
                .collect();
            let Some(columns) = columns else { continue };
            let priority = match config.rule {
                PriorityRule::Constant(priority) => priority,
                PriorityRule::TdError { max_weight, field } => {
                    let at = config.nodes.iter().position(|node| node.field == field).unwrap();
                    let errors: Vec<f64> = columns[at].iter().map(|x| x.abs() as f64).collect();
                    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
                    max_weight * errors.iter().copied().fold(0.0, f64::max) + (1.0 - max_weight) * mean
                }
            };
            self.applied[index].push(latest);
            all.push((index, columns, priority));
        }
        all
    }

    fn cell(&self, field: usize, step: i64) -> Option<i64> {
        if step < self.base as i64 { None } else { self.steps[step as usize][field] }
    }

    fn holds(&self, config: usize, condition: &StepCondition, ending: bool) -> bool {
        let latest = self.steps.len() - 1;
        let StepCondition::Compare { quantity, modulo, relation, number } = *condition else { return ending };
        let value = match quantity {
            Quantity::StepIndex => Some((latest - self.episode) as i64),
            Quantity::StepsSinceApplied => {
                Some(self.applied[config].last().map_or(latest + 1, |last| latest - last) as i64)
            }
            Quantity::Data(field) => self.steps[latest][field],
        };
        let Some(mut value) = value else { return false };
        if let Some(modulo) = modulo {
            value = ((value % modulo) + modulo) % modulo;
        }
        match relation {
            Relation::Equal => value == number,
            Relation::NotEqual => value != number,
            Relation::Less => value < number,
            Relation::AtMost => value <= number,
            Relation::Greater => value > number,
            Relation::AtLeast => value >= number,
        }
    }
}

fn node(field: usize) -> impl Strategy<Value = ConfigNode> {
    let range = (1..9i32, 0..4i32, 1..4i32).prop_map(|(len, back, step)| item::Cells::Range {
        start: -back - (len - 1) * step,
        step,
        len: len as u32,
    });
    let list = prop::collection::vec(-6..1i32, 1..5).prop_map(|list| item::Cells::List(list.into()));
    prop_oneof![
        (0..6i32).prop_map(move |back| ConfigNode { field, cells: item::Cells::one(-back), squeeze: true }),
        range.prop_map(move |cells| ConfigNode { field, cells, squeeze: false }),
        list.prop_map(move |cells| ConfigNode { field, cells, squeeze: false }),
    ]
}

fn condition() -> impl Strategy<Value = StepCondition> {
    let quantity = prop_oneof![Just(Quantity::StepIndex), Just(Quantity::StepsSinceApplied), Just(Quantity::Data(2))];
    let relation = prop::sample::select(vec![
        Relation::Equal,
        Relation::NotEqual,
        Relation::Less,
        Relation::AtMost,
        Relation::Greater,
        Relation::AtLeast,
    ]);
    let compare = (quantity, prop::option::of(1..4i64), relation, -1..5i64)
        .prop_map(|(quantity, modulo, relation, number)| StepCondition::Compare { quantity, modulo, relation, number });
    prop_oneof![4 => compare, 1 => Just(StepCondition::EndsEpisode)]
}

fn config() -> impl Strategy<Value = Config> {
    let nodes = prop::collection::vec((0..3usize).prop_flat_map(node), 1..4);
    let td = prop::option::of((node(3), 0..=4u8));
    (nodes, prop::collection::vec(condition(), 0..3), td).prop_map(|(mut nodes, conditions, td)| {
        let rule = match td {
            None => PriorityRule::Constant(2.0),
            Some((node, quarter)) => {
                nodes.push(node);
                PriorityRule::TdError { max_weight: f64::from(quarter) / 4.0, field: 3 }
            }
        };
        let structure = Arc::new(Structure::List(vec![Structure::Leaf; nodes.len()]));
        Config { table: "t".to_owned(), structure, nodes, conditions, rule }
    })
}

fn op() -> impl Strategy<Value = Op> {
    // Most values are there: holes are to be met, not to be everywhere.
    let value = prop::option::weighted(0.9, -9..10i64);
    let values = [value.clone(), value.clone(), value.clone(), value];
    prop_oneof![
        8 => (values, prop::bool::weighted(0.2)).prop_map(|(values, partial)| Op::Append { values, partial }),
        1 => any::<bool>().prop_map(|clear| Op::End { clear }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(1500)))]

    #[test]
    fn items_are_those_of_the_definitions(
        configs in prop::collection::vec(config(), 1..4), ops in prop::collection::vec(op(), 1..60)
    ) {
        let (mut writer, mut model) = (writer(&configs).unwrap(), Model::default());
        for mut op in ops {
            if let (Op::Append { values, .. }, true) = (&mut op, model.open) {
                // A part of a step gives what is still missing.
                let step = model.steps.last().unwrap();
                values.iter_mut().zip(step).filter(|(_, known)| known.is_some()).for_each(|(value, _)| *value = None);
            }
            let makes = match &op {
                Op::Append { values, partial } => append(&mut writer, values, *partial),
                Op::End { clear } => writer.end_episode(*clear),
            };
            let (got, want) = (seen(&makes.unwrap(), &configs), model.run(&op, &configs));
            prop_assert_eq!(got, want);
            prop_assert_eq!(writer.step_is_open(), model.open);
        }
    }
}

fn plain(field: usize, cells: item::Cells) -> Config {
    let nodes = vec![ConfigNode { field, cells, squeeze: false }];
    Config {
        table: "t".to_owned(),
        structure: Arc::new(Structure::Leaf),
        nodes,
        conditions: Vec::new(),
        rule: PriorityRule::Constant(1.0),
    }
}

#[test]
fn fields_that_no_pattern_takes_are_not_stored() {
    let meter = Arc::new(Meter::default());
    let config = plain(0, item::Cells::range(-1, 1));
    let fields = FIELDS.map(str::to_owned).to_vec();
    let mut writer = StructuredWriter::new(Arc::clone(&meter), Compression::None, fields, vec![config]).unwrap();
    assert_eq!([0, 1, 2, 3].map(|field| writer.wants(field)), [true, false, false, false]);
    append(&mut writer, &[Some(1), Some(1), Some(1), Some(1)], false).unwrap();
    let alone = meter.live_bytes();
    assert!(alone > 0);
    let config = Config {
        nodes: vec![
            ConfigNode { field: 0, cells: item::Cells::one(0), squeeze: true },
            ConfigNode { field: 1, cells: item::Cells::one(0), squeeze: true },
        ],
        structure: Arc::new(Structure::List(vec![Structure::Leaf; 2])),
        ..plain(0, item::Cells::one(0))
    };
    let (fields, both) = (FIELDS.map(str::to_owned).to_vec(), Arc::new(Meter::default()));
    let mut writer = StructuredWriter::new(Arc::clone(&both), Compression::None, fields, vec![config]).unwrap();
    append(&mut writer, &[Some(1), Some(1), Some(1), Some(1)], false).unwrap();
    assert!(both.live_bytes() > alone + 8, "a second column takes room: {} and {alone}", both.live_bytes());
}

#[test]
fn a_refused_append_leaves_the_step_as_it_was() {
    let td = Config {
        nodes: vec![ConfigNode { field: 3, cells: item::Cells::one(0), squeeze: true }],
        rule: PriorityRule::TdError { max_weight: 0.5, field: 3 },
        ..plain(3, item::Cells::one(0))
    };
    let mut writer = writer(&[plain(0, item::Cells::one(0)), td]).unwrap();
    assert_eq!(append(&mut writer, &[Some(1), None, None, None], true).unwrap().len(), 1);
    let twice = append(&mut writer, &[Some(2), None, None, Some(1)], false).unwrap_err();
    assert!(twice.to_string().contains("'a' was given twice"), "{twice}");
    writer.resolve(&[3], &[field_spec(3)]).unwrap();
    let nan = writer.append(&[3], &[ColumnCells { itemsize: 8, bytes: &f64::NAN.to_ne_bytes() }], false).unwrap_err();
    assert!(nan.to_string().contains("'td' is NaN"), "{nan}");
    assert!(writer.step_is_open());
    let makes = append(&mut writer, &[None, None, None, Some(-3)], false).unwrap();
    assert_eq!(
        seen(
            &makes,
            &[plain(0, item::Cells::one(0)), plain(3, item::Cells::one(0))].map(|mut c| {
                c.nodes[0].squeeze = true;
                c
            })
        ),
        [(1, vec![vec![-3]], 3.0)]
    );
}

#[test]
fn fields_of_dtypes_that_a_condition_or_a_priority_cannot_read_are_refused() {
    let flagged = Config {
        conditions: vec![StepCondition::Compare {
            quantity: Quantity::Data(2),
            modulo: None,
            relation: Relation::Equal,
            number: 1,
        }],
        ..plain(0, item::Cells::one(0))
    };
    let refused = |dtype, shape: &[usize]| {
        writer(std::slice::from_ref(&flagged)).unwrap().resolve(&[2], &[spec("flag", dtype, shape)])
    };
    assert!(matches!(refused(DType::Float32, &[]), Err(Error::Signature { path, .. }) if path == "flag"));
    assert!(matches!(refused(DType::Int32, &[2]), Err(Error::Signature { path, .. }) if path == "flag"));
    refused(DType::UInt64, &[1]).unwrap();
    let mut writer = writer(&[flagged]).unwrap();
    writer.resolve(&[0, 2], &[field_spec(0), spec("flag", DType::UInt64, &[])]).unwrap();
    assert!(writer.resolve(&[2], &[spec("flag", DType::Int8, &[])]).is_err(), "another dtype than before");
}

#[test]
fn configs_that_can_never_work_are_refused() {
    let refused = |config: Config| writer(&[config]).err().expect("a refusal").to_string();
    assert!(writer(&[]).is_err());
    assert!(refused(plain(0, item::Cells::one(1))).contains("'a' reaches beyond"));
    assert!(refused(plain(0, item::Cells::one(-(1 << 20)))).contains("'a' reaches beyond"));
    assert!(refused(plain(0, item::Cells::List([].into()))).contains("'a' takes no steps"));
    assert!(refused(plain(9, item::Cells::one(0))).contains("no field 9"));
    let td =
        |max_weight| Config { rule: PriorityRule::TdError { max_weight, field: 3 }, ..plain(0, item::Cells::one(0)) };
    assert!(refused(td(0.5)).contains("'td', which the pattern takes 0 times"));
    assert!(refused(td(1.5)).contains("max_priority_weight"));
    assert!(refused(td(f64::NAN)).contains("max_priority_weight"));
}
