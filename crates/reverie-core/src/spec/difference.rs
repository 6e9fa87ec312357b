//! The first difference of two structures.

use super::{Structure, StructureKey};

impl Structure {
    /// The first difference of `other` from this structure: (path, what `other` has there, what this one has).
    ///
    /// Records are equal if their names and fields are: the module of a class depends on how it was imported. Lists and
    /// tuples are equal: saving and loading may turn one into the other.
    pub fn difference(&self, other: &Structure) -> Option<(String, String, String)> {
        differ(self, other, &mut String::new())
    }
}

fn differ(want: &Structure, got: &Structure, path: &mut String) -> Option<(String, String, String)> {
    type Children<'a> = Vec<(String, &'a Structure)>;
    fn of(structure: &Structure) -> (String, Children<'_>) {
        let numbered = |children: &[Structure]| (0..children.len()).map(|index| index.to_string()).collect::<Vec<_>>();
        match structure {
            Structure::Leaf => ("an array".to_owned(), Vec::new()),
            Structure::Dict(entries) => {
                let shown = |key: &StructureKey| {
                    if let StructureKey::Str(text) = key { format!("'{text}'") } else { key.to_string() }
                };
                let keys = entries.iter().map(|(key, _)| shown(key)).collect::<Vec<_>>().join(", ");
                let children = entries.iter().map(|(key, child)| (key.to_string(), child)).collect();
                (format!("a dict of {keys}"), children)
            }
            Structure::List(all) => (format!("a list of {}", all.len()), numbered(all).into_iter().zip(all).collect()),
            Structure::Tuple(all) => {
                (format!("a tuple of {}", all.len()), numbered(all).into_iter().zip(all).collect())
            }
            Structure::Record { name, fields, .. } => {
                let names = fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                (format!("a {name} of {names}"), fields.iter().map(|(name, child)| (name.clone(), child)).collect())
            }
        }
    }
    let ((wanted, ours), (had, theirs)) = (of(want), of(got));
    let is_sequence = |structure: &Structure| matches!(structure, Structure::List(_) | Structure::Tuple(_));
    let alike = is_sequence(want) && is_sequence(got) && ours.len() == theirs.len();
    if wanted != had && !alike {
        return Some((path.clone(), had, wanted));
    }
    ours.into_iter().zip(theirs).find_map(|((name, want), (_, got))| {
        let before = path.len();
        if before > 0 {
            path.push('/');
        }
        path.push_str(&name);
        let found = differ(want, got, path);
        path.truncate(before);
        found
    })
}
