//! One column of an item as JSON: numbers, text or a picture.

use crate::uninit::as_uninit;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reverie_core::Result;
use reverie_core::batch::{BatchOptions, OutputArray, Ragged, plan};
use reverie_core::item::Item;
use reverie_core::sample::Draws;
use reverie_core::spec::DType;
use serde_json::{Value, json};

/// Bytes of a column that is read; of a larger one only the shape is reported.
const READ_BYTES: usize = 8 << 20;
/// Numbers of a column that are sent.
const SENT_NUMBERS: usize = 64;
/// Characters of a text that are sent.
const SENT_CHARACTERS: usize = 1024;
/// Bytes of a column's pictures that are sent; the frames that fit are sent.
const SENT_PIXELS: usize = 1 << 20;
/// Fewer pixels along an axis are numbers, not a picture.
const SMALLEST_SIDE: usize = 8;

/// The bytes that a response may still take.
pub(super) struct ResponseBudget {
    /// Bytes that are sent as pictures.
    pixels: usize,
    /// Bytes that are read, those of packed chunks that are unpacked included.
    read: u64,
}

impl ResponseBudget {
    /// The room of one response.
    pub(super) fn new() -> Self {
        Self { pixels: 8 << 20, read: 256 << 20 }
    }

    /// Takes bytes to read; false if they are too many.
    fn reads(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.read;
        self.read -= if fits { bytes } else { 0 };
        fits
    }
}

/// A column: `path`, `dtype`, `shape` and `bytes`, and, if it is small enough to be read, its content.
pub(super) fn column(item: &Item, path: &str, room: &mut ResponseBudget) -> Result<Value> {
    let paths = [path.to_owned()];
    // Steps whose cells differ in size are shown padded.
    let plan = plan(&[item], &BatchOptions { ragged: Ragged::Pad, columns: Some(&paths) })?;
    let Some(output) = plan.outputs.first() else { return Ok(json!({ "path": path })) };
    let mut described = json!({
        "path": path,
        "dtype": output.dtype.name(),
        "shape": &output.shape[1..],
        "bytes": output.bytes(),
    });
    let draws = Draws { items: vec![item.clone()], ..Draws::default() };
    let content = if output.bytes() > READ_BYTES
        || !room.reads(plan.unpacking(&draws)?.bytes.saturating_add(output.bytes() as u64))
    {
        json!({ "left_out": "the column is large" })
    } else {
        let mut arrays: Vec<Vec<u8>> = plan.outputs.iter().map(|output| vec![0; output.bytes()]).collect();
        let mut places: Vec<_> = arrays.iter_mut().map(|array| as_uninit(array)).collect();
        plan.gather(&[item], &mut places)?;
        content(output, &arrays[0], room)
    };
    if let (Value::Object(all), Value::Object(more)) = (&mut described, content) {
        all.extend(more);
    }
    Ok(described)
}

fn content(output: &OutputArray, bytes: &[u8], room: &mut ResponseBudget) -> Value {
    let shape = &output.shape[1..];
    match output.dtype {
        DType::Str => {
            let units = bytes.chunks_exact(4).map(|unit| u32::from_ne_bytes(unit.try_into().expect("four bytes")));
            let text = units.filter(|unit| *unit != 0).filter_map(char::from_u32).take(SENT_CHARACTERS);
            json!({ "text": text.collect::<String>() })
        }
        DType::UInt8 => match PixelLayout::of(shape) {
            Some(picture) => picture.content(bytes, room),
            None => numbers(output.dtype, bytes),
        },
        dtype => numbers(dtype, bytes),
    }
}

/// The layout of the pixels of a column.
struct PixelLayout {
    frames: usize,
    height: usize,
    width: usize,
    channels: usize,
}

impl PixelLayout {
    /// `[..., height, width]` or `[..., height, width, 1, 3 or 4]`; the axes before are frames.
    fn of(shape: &[usize]) -> Option<Self> {
        let (shape, channels) = match shape {
            [before @ .., channels @ (1 | 3 | 4)] if before.len() >= 2 => (before, *channels),
            _ => (shape, 1),
        };
        let [before @ .., height, width] = shape else { return None };
        let (frames, height, width) = (before.iter().product(), *height, *width);
        (height.min(width) >= SMALLEST_SIDE && frames > 0).then_some(Self { frames, height, width, channels })
    }

    fn content(&self, bytes: &[u8], room: &mut ResponseBudget) -> Value {
        let frame = self.height * self.width * self.channels;
        let sent = self.frames.min(SENT_PIXELS.min(room.pixels) / frame);
        if sent == 0 {
            return json!({ "left_out": "the picture is large" });
        }
        room.pixels -= sent * frame;
        json!({ "picture": {
            "frames": self.frames,
            "frames_sent": sent,
            "height": self.height,
            "width": self.width,
            "channels": self.channels,
            "base64": BASE64_STANDARD.encode(&bytes[..sent * frame]),
        } })
    }
}

fn numbers(dtype: DType, bytes: &[u8]) -> Value {
    let Some(all) = read(dtype, bytes) else { return json!({ "left_out": "no numbers of this dtype are shown" }) };
    let finite = all.iter().copied().filter(|number| number.is_finite());
    let (count, sum) = finite.clone().fold((0_u64, 0.0), |(count, sum), number| (count + 1, sum + number));
    json!({
        "numbers": all.iter().take(SENT_NUMBERS).map(|number| number_or_name(*number)).collect::<Vec<_>>(),
        "min": finite.clone().reduce(f64::min),
        "max": finite.reduce(f64::max),
        "mean": (count > 0).then(|| sum / count as f64),
    })
}

/// JSON has no names for numbers that are not finite.
fn number_or_name(number: f64) -> Value {
    if number.is_finite() { json!(number) } else { json!(number.to_string()) }
}

/// The elements as numbers; `None` for a dtype that has none.
fn read(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    fn each<const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).map(|element| of(element.try_into().expect("as many bytes"))).collect()
    }
    Some(match dtype {
        DType::Bool | DType::UInt8 => each(bytes, |[byte]| f64::from(byte)),
        DType::Int8 => each(bytes, |element| f64::from(i8::from_ne_bytes(element))),
        DType::Int16 => each(bytes, |element| f64::from(i16::from_ne_bytes(element))),
        DType::Int32 => each(bytes, |element| f64::from(i32::from_ne_bytes(element))),
        DType::Int64 => each(bytes, |element| i64::from_ne_bytes(element) as f64),
        DType::UInt16 => each(bytes, |element| f64::from(u16::from_ne_bytes(element))),
        DType::UInt32 => each(bytes, |element| f64::from(u32::from_ne_bytes(element))),
        DType::UInt64 => each(bytes, |element| u64::from_ne_bytes(element) as f64),
        DType::Float16 => each(bytes, |element| half(u16::from_ne_bytes(element))),
        DType::BFloat16 => {
            each(bytes, |element| f64::from(f32::from_bits(u32::from(u16::from_ne_bytes(element)) << 16)))
        }
        DType::Float32 => each(bytes, |element| f64::from(f32::from_ne_bytes(element))),
        DType::Float64 => each(bytes, f64::from_ne_bytes),
        _ => return None,
    })
}

/// A float of 16 bits (IEEE 754 binary16).
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_of_16_bits_is_read_as_its_value() {
        let cases =
            [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (0x0001, 2_f64.powi(-24)), (0x7c00, f64::INFINITY)];
        cases.into_iter().for_each(|(bits, value)| assert_eq!(half(bits), value, "{bits:#x}"));
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn pixels_are_a_picture_and_short_rows_are_numbers() {
        let parts = |shape: &[usize]| PixelLayout::of(shape).map(|of| (of.frames, of.height, of.width, of.channels));
        assert_eq!(parts(&[84, 84]), Some((1, 84, 84, 1)));
        assert_eq!(parts(&[96, 80, 3]), Some((1, 96, 80, 3)));
        assert_eq!(parts(&[5, 4, 84, 84]), Some((20, 84, 84, 1)));
        assert_eq!(parts(&[3, 8]), None);
        assert_eq!(parts(&[100]), None);
        assert_eq!(parts(&[0, 84, 84]), None);
    }

    #[test]
    fn only_the_frames_that_fit_are_sent_and_room_is_used_up() {
        let (bytes, mut room) = (vec![7; 3 * 64], ResponseBudget { pixels: 130, read: 0 });
        let picture = || PixelLayout::of(&[3, 8, 8]).unwrap();
        assert_eq!(picture().content(&bytes, &mut room)["picture"]["frames_sent"], 2);
        assert_eq!(room.pixels, 2);
        assert_eq!(picture().content(&bytes, &mut room)["left_out"], "the picture is large");
    }
}
