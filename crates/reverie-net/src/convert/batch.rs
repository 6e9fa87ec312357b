//! Read options, and descriptions of the arrays of a batch.

use super::{broken, dtype, present, shape, structure};
use crate::proto;
use reverie_core::Result;
use reverie_core::batch::{Head, OutputArray, Ragged, Role};
use reverie_core::sample::{Borders, Windows};
use reverie_core::spec::Structure;

/// Encodes the read options of a batch.
pub fn encode_read_options(columns: Option<&[String]>, ragged: Ragged) -> proto::Reading {
    let ragged = match ragged {
        Ragged::Refuse => proto::Ragged::Refuse,
        Ragged::Pad => proto::Ragged::Pad,
        Ragged::Values => proto::Ragged::Values,
        Ragged::PadCells => proto::Ragged::PadCells,
    };
    proto::Reading { columns: columns.unwrap_or_default().to_vec(), ragged: ragged.into() }
}

/// Decodes the columns (`None`: all), and the handling of unequal lengths. A missing message means the defaults.
pub fn decode_read_options(message: Option<proto::Reading>) -> Result<(Option<Vec<String>>, Ragged)> {
    let message = message.unwrap_or_default();
    let ragged = match proto::Ragged::try_from(message.ragged) {
        Ok(proto::Ragged::Refuse) => Ragged::Refuse,
        Ok(proto::Ragged::Pad) => Ragged::Pad,
        Ok(proto::Ragged::Values) => Ragged::Values,
        Ok(proto::Ragged::PadCells) => Ragged::PadCells,
        Err(_) => return Err(broken(format!("the mode {} for unequal lengths is unknown", message.ragged))),
    };
    Ok(((!message.columns.is_empty()).then_some(message.columns), ragged))
}

/// Encodes windows.
pub fn encode_windows(windows: &Windows) -> proto::Windows {
    let borders = match windows.borders() {
        Borders::Drop => proto::Borders::Drop,
        Borders::Pad => proto::Borders::Pad,
        Borders::Cross => proto::Borders::Cross,
    };
    proto::Windows { length: windows.length(), burn_in: windows.burn_in(), borders: borders.into() }
}

/// Decodes windows; `InvalidArgument` for invalid sizes.
pub fn decode_windows(message: proto::Windows) -> Result<Windows> {
    let borders = match proto::Borders::try_from(message.borders) {
        Ok(proto::Borders::Drop) => Borders::Drop,
        Ok(proto::Borders::Pad) => Borders::Pad,
        Ok(proto::Borders::Cross) => Borders::Cross,
        Err(_) => return Err(broken(format!("the mode {} for the borders of windows is unknown", message.borders))),
    };
    Windows::new(u64::from(message.length), u64::from(message.burn_in), borders)
}

/// Encodes the description of a batch's arrays; the first `num_columns` outputs fill the structure.
pub fn encode_head(
    outputs: &[OutputArray],
    structure: &Structure,
    num_columns: usize,
    timestep: bool,
) -> proto::BatchHead {
    proto::BatchHead {
        outputs: outputs.iter().map(encode_output).collect(),
        structure: Some(structure::encode(structure)),
        num_columns: num_columns as u32,
        timestep,
    }
}

fn encode_output(output: &OutputArray) -> proto::Output {
    let (role, of) = match output.role {
        Role::Column => (proto::Role::Column, None),
        Role::Mask(of) => (proto::Role::Mask, of),
        Role::Lengths(of) => (proto::Role::Lengths, of),
        Role::First => (proto::Role::First, None),
        Role::Start => (proto::Role::Start, None),
    };
    proto::Output {
        path: output.path.clone(),
        dtype: output.dtype.name().to_owned(),
        itemsize: output.itemsize as u32,
        shape: output.shape.iter().map(|size| *size as u64).collect(),
        role: role.into(),
        of: of.map(|of| of as u32),
    }
}

/// Decodes the description of a batch's arrays.
/// Checks that sizes do not overflow, that elements are as wide as their dtypes, and that the columns come first and
/// are as many as the structure has leaves.
pub fn decode_head(message: proto::BatchHead) -> Result<Head> {
    let structure = structure::decode(present(message.structure, "structure")?)?;
    let num_columns = message.num_columns as usize;
    let outputs =
        message.outputs.into_iter().map(|output| decode_output(output, num_columns)).collect::<Result<Vec<_>>>()?;
    let (columns, rest) =
        outputs.split_at_checked(num_columns).filter(|_| structure.num_leaves() == num_columns).ok_or_else(|| {
            broken(format!(
                "a batch of {} arrays cannot have {num_columns} columns, or its structure has another number of leaves",
                outputs.len()
            ))
        })?;
    let in_order = columns.iter().all(|output| output.role == Role::Column)
        && rest.iter().all(|output| output.role != Role::Column);
    if !in_order {
        return Err(broken("the columns of a batch are not the first of its arrays"));
    }
    Ok(Head { structure, num_columns, timestep: message.timestep, outputs })
}

fn decode_output(message: proto::Output, num_columns: usize) -> Result<OutputArray> {
    let proto::Output { path, itemsize, .. } = message;
    let dtype = dtype(&message.dtype, &path)?;
    let itemsize = itemsize as usize;
    // Text elements are UCS-4.
    let unit = if dtype == reverie_core::spec::DType::Str { 4 } else { 1 };
    if dtype.size().is_some_and(|size| size != itemsize) || !itemsize.is_multiple_of(unit) {
        return Err(broken(format!(
            "array '{path}' has elements of {itemsize} bytes, which the dtype {dtype} cannot have"
        )));
    }
    let of = match message.of {
        Some(of) if of as usize >= num_columns => {
            let reason = format!("array '{path}' refers to array {of}, and the batch has {num_columns} columns");
            return Err(broken(reason));
        }
        of => of.map(|of| of as usize),
    };
    let role = match proto::Role::try_from(message.role) {
        Ok(proto::Role::Column) => Role::Column,
        Ok(proto::Role::Mask) => Role::Mask(of),
        Ok(proto::Role::Lengths) => Role::Lengths(of),
        Ok(proto::Role::First) => Role::First,
        Ok(proto::Role::Start) => Role::Start,
        Err(_) => return Err(broken(format!("array '{path}' has the unknown role {}", message.role))),
    };
    let shape = shape(&message.shape, itemsize, &path)?;
    Ok(OutputArray { path, dtype, itemsize, shape, role })
}
