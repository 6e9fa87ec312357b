//! The columns of a transition writer, and the forms of its items.

use super::options::TransitionOptions;
use crate::error::{Error, Result};
use crate::item::{self, Form, Pattern, PatternColumn};
use crate::spec::{ColumnSpec, DType, Schema, Structure, StructureKey};
use std::collections::HashMap;

/// The names that the writer adds.
const RESERVED: [&str; 5] = ["action", "discount", "next_obs", "obs", "reward"];

/// The columns of a writer: observation, action and extras as given, then reward and discount.
pub(super) struct Columns {
    pub(super) specs: Vec<ColumnSpec>,
    pub(super) num_obs: usize,
    /// The place of every column: the run of an environment that has it, and its number there. Cells of one width share
    /// the first run; each column whose cells differ has one of its own.
    pub(super) places: Vec<(usize, usize)>,
    /// The columns whose cells differ, in the order of their runs, which follow the first.
    pub(super) open: Vec<usize>,
    /// The columns of an item in flattening order: the path, the column, and whether it is read at the right end.
    item: Vec<(String, usize, bool)>,
    structure: Structure,
    patterns: HashMap<(usize, usize), Form>,
}

impl Columns {
    pub(super) fn new(obs: &Schema, action: &Schema, extras: Option<&Schema>) -> Result<Self> {
        let under = |name: &str, schema: &Schema| -> Vec<ColumnSpec> {
            let path = |spec: &ColumnSpec| match spec.path.is_empty() {
                true => name.to_owned(),
                false => format!("{name}/{}", spec.path),
            };
            schema.columns.iter().map(|spec| ColumnSpec { path: path(spec), ..spec.clone() }).collect()
        };
        let mut specs = under("obs", obs);
        let num_obs = specs.len();
        specs.extend(under("action", action));
        let num_steps = specs.len();
        // Top-level name, its structure, its columns here, and whether they are read at the right end.
        let mut parts = vec![
            ("obs".to_owned(), obs.structure.clone(), 0..num_obs, false),
            ("next_obs".to_owned(), obs.structure.clone(), 0..num_obs, true),
            ("action".to_owned(), action.structure.clone(), num_obs..num_steps, false),
        ];
        if let Some(extras) = extras {
            let Structure::Dict(entries) = &extras.structure else {
                return Err(Error::InvalidArgument("extras must be a dictionary of arrays".to_owned()));
            };
            for (key, structure) in entries {
                let name = match key {
                    StructureKey::Str(name) if !RESERVED.contains(&name.as_str()) => name.clone(),
                    other => {
                        return Err(Error::InvalidArgument(format!(
                            "extras cannot be named '{other}': the writer gives {RESERVED:?} itself, and names are text"
                        )));
                    }
                };
                let first = specs.len();
                specs.extend(extras.columns[first - num_steps..][..structure.num_leaves()].iter().cloned());
                parts.push((name, structure.clone(), first..specs.len(), false));
            }
        }
        let float = |path: &str| ColumnSpec { path: path.to_owned(), dtype: DType::Float32, shape: vec![] };
        for name in ["reward", "discount"] {
            parts.push((name.to_owned(), Structure::Leaf, specs.len()..specs.len() + 1, false));
            specs.push(float(name));
        }
        parts.sort_by(|a, b| a.0.cmp(&b.0));
        let structure =
            Structure::Dict(parts.iter().map(|(name, s, ..)| (StructureKey::Str(name.clone()), s.clone())).collect());
        let columns = parts.iter().flat_map(|(_, _, columns, right)| columns.clone().map(|column| (column, *right)));
        let item = structure.paths().into_iter().zip(columns).map(|(path, (column, right))| (path, column, right));
        let item = item.collect();
        let (mut places, mut open, mut fixed) = (Vec::with_capacity(specs.len()), Vec::new(), 0);
        for (column, spec) in specs.iter().enumerate() {
            if spec.is_variable() {
                open.push(column);
                places.push((open.len(), 0));
            } else {
                places.push((0, fixed));
                fixed += 1;
            }
        }
        Ok(Self { num_obs, places, open, item, structure, patterns: HashMap::new(), specs })
    }

    /// The columns whose cells have one width, in the order of the first run.
    pub(super) fn fixed(&self) -> impl Iterator<Item = &ColumnSpec> {
        self.specs.iter().filter(|spec| !spec.is_variable())
    }

    /// The form of an item with `before` earlier frames in its episode and its right end `steps` later.
    ///
    /// `before` is at most a stack's frames less one. If a stack reaches before the episode, the first frame is
    /// repeated.
    pub(super) fn pattern(&mut self, options: &TransitionOptions, before: usize, steps: usize) -> Form {
        let Self { item, specs, num_obs, places, structure, patterns, .. } = self;
        let make = || {
            let columns = item.iter().map(|(path, column, right)| {
                let at = if *right { steps as i32 } else { 0 };
                let stacked = options.frame_stack.filter(|_| column < num_obs);
                let cells = match stacked {
                    None => item::Cells::one(at),
                    Some(frames) if before + if *right { steps } else { 0 } + 1 >= frames => {
                        item::Cells::range(at + 1 - frames as i32, at + 1)
                    }
                    Some(frames) => item::Cells::List(
                        (at + 1 - frames as i32..=at).map(|cell| cell.max(-(before as i32))).collect(),
                    ),
                };
                PatternColumn {
                    spec: ColumnSpec { path: path.clone(), ..specs[*column].clone() },
                    part: places[*column].0 as u32,
                    column: places[*column].1 as u32,
                    cells,
                    squeeze: stacked.is_none(),
                    stack_axis: stacked.map_or(0, |_| options.stack_axis),
                }
            });
            let (columns, structure) = (columns.collect(), structure.clone());
            Form::new(Pattern { columns, structure, timestep: false, alike: true })
        };
        patterns.entry((before, steps)).or_insert_with(make).clone()
    }
}
