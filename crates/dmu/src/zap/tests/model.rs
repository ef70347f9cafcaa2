//! Long random histories of a ZAP beside a plain map.

use super::*;

/// Names of all kinds: few enough that most are met again.
fn names(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (0..1500).map(|i| format!("entry-{i}").into_bytes()).collect();
    for _ in 0..300 {
        let len = 1 + rng.below(255) as usize;
        names.push((0..len).map(|_| 1 + rng.below(255) as u8).collect());
    }
    // All of one hash; then as many as two leaves take, of two hashes that differ in one bit.
    names.extend(colliding(40, 28, 60));
    names.extend(colliding(60, 27, 100));
    names
}

fn bytes(rng: &mut Rng, max: u64) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(max + 1) as usize];
    rng.fill(&mut bytes);
    bytes
}

fn value(rng: &mut Rng) -> Value {
    let some = bytes(rng, 60);
    let ints = || some.iter().map(|&b| u64::from(b));
    match rng.below(20) {
        0..12 => Value::u64(rng.next_u64()),
        12 => Value::words(&ints().map(|i| i << 33 | 7).collect::<Vec<_>>()),
        13 => Value::u32s(&ints().map(|i| (i << 13) as u32).collect::<Vec<_>>()),
        14 => Value::u16s(&ints().map(|i| (i << 5) as u16).collect::<Vec<_>>()),
        15 => Value::string(&some),
        16 => Value::bytes(&bytes(rng, 8192)),
        17 => Value::words(&[]),
        _ => Value::bytes(&bytes(rng, 300)),
    }
}

/// `steps` random changes; in a micro ZAP as long as `micro_only`.
fn history(seed: u64, steps: usize, mut blocks: MemoryBlocks, micro_only: bool) {
    let mut rng = Rng::new(seed);
    let mut names = names(&mut rng);
    if micro_only {
        names.retain(|n| n.len() < 50 && !n.contains(&0));
    }
    let mut model: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
    let mut full = 0;
    for step in 0..steps {
        // Phases of growth and of decline.
        let grow = if step / 5000 % 2 == 0 { 75 } else { 30 };
        let name = names[rng.below(names.len() as u64) as usize].clone();
        let key = name.as_slice();
        let value = if micro_only { Value::u64(rng.next_u64()) } else { value(&mut rng) };
        let known = model.contains_key(&name);
        if rng.below(100) >= grow {
            assert_eq!(remove(&mut blocks, key), Ok(known), "seed {seed}, step {step}");
            model.remove(&name);
        } else if rng.below(3) == 0 {
            match update(&mut blocks, key, &value) {
                Ok(()) => drop(model.insert(name, value)),
                Err(ZapError::Full) => full += 1,
                Err(e) => panic!("seed {seed}, step {step}: {e}"),
            }
        } else {
            match add(&mut blocks, key, &value) {
                Ok(done) => {
                    assert_eq!(done, !known, "seed {seed}, step {step}");
                    model.entry(name).or_insert(value);
                }
                Err(ZapError::Full) => full += 1,
                Err(e) => panic!("seed {seed}, step {step}: {e}"),
            }
        }
        if step % 2500 == 0 || step + 1 == steps {
            assert_eq!(findings(&blocks), [], "seed {seed}, step {step}");
            assert!(content(&blocks) == model, "seed {seed}, step {step}");
            assert_eq!(count(&blocks), Ok(model.len() as u64));
            for name in names.iter().step_by(13) {
                assert_eq!(lookup(&blocks, name.as_slice()).unwrap().as_ref(), model.get(name));
            }
        }
        if micro_only {
            assert_eq!(kind(&blocks), Ok(Kind::Micro));
        }
    }
    // What could not be added was one of many of one hash, and that was rare.
    assert!(full < steps / 10, "{full} of {steps} found no room");
}

#[test]
fn from_micro_to_fat() {
    history(1, 100_000, micro(0), false);
}

#[test]
fn in_a_micro_zap() {
    history(2, 100_000, micro(0), true);
}

#[test]
fn in_small_blocks() {
    // So small that not all values fit: those are refused, which is tested elsewhere.
    history(3, 60_000, fat(15, 0), false);
    history(4, 60_000, fat(17, 0), false);
}

#[test]
fn with_long_hashes() {
    history(5, 60_000, fat(14, 1), false);
}
