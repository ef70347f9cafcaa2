//! The labels of devices, part by part: equal ones once, with the numbers of those that have them.

use std::path::PathBuf;

use device::{Device, ReadFile};
use format::bootenv::BootEnv;
use pool::devices::{LabelParts, label_parts};

use super::{Teller, Told};
use crate::dump::{Fact, Value};

/// Tells the labels of each device; one that cannot be opened is told as an error.
pub(super) fn tell(out: &mut Teller<'_>, devices: &[PathBuf], rings: bool) -> Told {
    for path in devices {
        let name = path.display().to_string();
        match ReadFile::open(path) {
            Ok(device) => {
                let fact = Fact::new("device").text("device", name.clone());
                out.tell(fact.number("size", device.size()))?;
                device_labels(out, &name, &device, rings)?;
            }
            Err(error) => out.wrong(name, error)?,
        }
    }
    Ok(())
}

fn device_labels(out: &mut Teller<'_>, name: &str, device: &dyn Device, rings: bool) -> Told {
    let labels = label_parts(device);
    let mut good = Vec::new();
    for (number, label) in labels.iter().enumerate() {
        match label {
            Ok(label) => {
                checks(out, name, label)?;
                good.push(label);
            }
            Err(error) => out.wrong(format!("{name}: label {number}"), error)?,
        }
    }
    for (at, label) in good.iter().enumerate() {
        let Ok(config) = &label.config else { continue };
        let same = |other: &&&LabelParts| other.config.as_ref() == Ok(config);
        if good.iter().take(at).any(|other| same(&other)) {
            continue;
        }
        let numbers = good.iter().filter(same).map(|other| other.label as u64).collect();
        let fact = Fact::new("label").text("device", name).number("label", label.label as u64);
        let fact = fact.with("config", Value::List(config.clone()));
        out.tell(fact.with("labels", Value::Numbers(numbers)))?;
    }
    if rings { ring(out, name, &good) } else { Ok(()) }
}

/// Which parts of a label are whole.
fn checks(out: &mut Teller<'_>, name: &str, label: &LabelParts) -> Told {
    let state = |error: Option<String>| error.unwrap_or_else(|| "ok".into());
    let config = label.config.as_ref().err().map(ToString::to_string);
    let bootenv = label.bootenv.as_ref().err().map(ToString::to_string);
    let bad = label.ring.iter().filter(|slot| slot.uberblock.is_err()).count();
    let newest = label.ring.iter().filter_map(|slot| slot.uberblock.as_ref().ok());
    let newest = newest.max_by(|a, b| a.cmp_age(b)).map_or(0, |uberblock| uberblock.txg.get());
    let mut fact = Fact::new("label-check")
        .text("device", name)
        .number("label", label.label as u64)
        .hex("offset", label.offset)
        .word("config", state(config))
        .word("bootenv", state(bootenv))
        .number("slot_size", label.slot_size as u64)
        .number("uberblocks", (label.ring.len() - bad) as u64)
        .number("bad_slots", bad as u64)
        .number("newest_txg", newest);
    match &label.bootenv {
        Ok(BootEnv::Raw(text)) if !text.is_empty() => fact = fact.text("boot", text.clone()),
        Ok(BootEnv::List(list)) => fact = fact.with("boot", Value::List(list.clone())),
        _ => {}
    }
    if label.config.is_err() {
        out.errors += 1;
    }
    out.tell(fact)
}

/// The rings: slot by slot what is in it, with the labels that have the same there.
fn ring(out: &mut Teller<'_>, name: &str, labels: &[&LabelParts]) -> Told {
    let slots = labels.iter().flat_map(|label| &label.ring).map(|slot| slot.slot);
    let last = slots.max().unwrap_or(0);
    for number in 0..=last {
        let in_slot = |label: &LabelParts| {
            label.ring.iter().find(|slot| slot.slot == number).map(|slot| slot.uberblock.clone())
        };
        let all: Vec<_> = labels.iter().map(|label| (label.label, in_slot(label))).collect();
        for (at, (label, found)) in all.iter().enumerate() {
            let Some(found) = found else { continue };
            let same = |(_, other): &&(usize, Option<_>)| match (found, other) {
                (Ok(one), Some(Ok(other))) => one == other,
                _ => false,
            };
            let fact = Fact::new("ring").text("device", name).number("slot", number as u64);
            match found {
                Err(error) => {
                    let fact = fact.with("labels", Value::Numbers(vec![*label as u64]));
                    out.tell(fact.word("error", error.to_string()))?;
                }
                Ok(_) if all.iter().take(at).any(|other| same(&other)) => {}
                Ok(uberblock) => {
                    let numbers = all.iter().filter(same).map(|(label, _)| *label as u64);
                    let fact = fact.with("labels", Value::Numbers(numbers.collect()));
                    out.tell(fact.with("uberblock", Value::Uberblock(Box::new(*uberblock))))?;
                }
            }
        }
    }
    Ok(())
}
