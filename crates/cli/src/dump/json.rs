//! Facts for machines: a JSON object each, one a line.

use serde_json::{Map, Value as Json, json};
use verbs::dump::{BlkPtr, Fact, NvList, Uberblock, Value, printing};

/// A fact on one line.
pub(super) fn line(fact: &Fact) -> String {
    let mut line = Map::new();
    line.insert("kind".into(), json!(fact.kind));
    if let Some(dataset) = &fact.dataset {
        line.insert("dataset".into(), json!(&**dataset));
    }
    if let Some(object) = fact.object {
        // The accounting objects are those below 0.
        let object =
            if object >= u64::MAX - 2 { json!(object.cast_signed()) } else { json!(object) };
        line.insert("object".into(), object);
    }
    let mut values = Map::new();
    for (name, value) in &fact.values {
        values.insert((*name).into(), of(value));
    }
    line.insert("values".into(), Json::Object(values));
    Json::Object(line).to_string() + "\n"
}

fn of(value: &Value) -> Json {
    match value {
        Value::Number(number) | Value::Hex(number) => json!(number),
        Value::Signed(number) => json!(number),
        Value::Time(seconds, None) => json!(seconds),
        Value::Time(seconds, Some(nanos)) => json!(format!("{seconds}.{nanos:09}")),
        Value::Word(word) => json!(word),
        Value::Text(bytes) => json!(crate::json::escaped(bytes)),
        Value::Bytes(bytes) => json!(super::text::hex(bytes)),
        Value::Numbers(numbers) => json!(numbers),
        Value::Words(words) => json!(words),
        Value::Checksum(words) => json!(checksum(words)),
        Value::Pointer(bp) => pointer(bp),
        Value::List(list) => pairs(list),
        Value::Uberblock(uberblock) => self::uberblock(uberblock),
    }
}

fn checksum(words: &[u64; 4]) -> String {
    let [a, b, c, d] = words;
    format!("{a:016x}:{b:016x}:{c:016x}:{d:016x}")
}

fn pointer(bp: &BlkPtr) -> Json {
    let dva = |dva: verbs::dump::Dva| json!({ "vdev": dva.vdev, "offset": dva.offset, "asize": dva.asize, "gang": dva.gang });
    let dvas: Vec<Json> = bp.dvas().map(dva).collect();
    json!({
        "level": bp.level(),
        "type": bp.kind().0,
        "lsize": bp.lsize(),
        "psize": bp.psize(),
        "birth": bp.birth(),
        "physical_birth": bp.physical_birth(),
        "fill": bp.fill(),
        "hole": bp.is_hole(),
        "embedded": bp.is_embedded(),
        "encrypted": bp.is_crypt(),
        "little_endian": bp.is_little_endian(),
        "compress": bp.compress_id(),
        "checksum_kind": bp.checksum_id(),
        "checksum": checksum(&bp.checksum_words()),
        "dvas": dvas,
        "text": printing::blkptr(bp).to_string(),
    })
}

fn uberblock(uberblock: &Uberblock) -> Json {
    json!({
        "version": uberblock.version.get(),
        "txg": uberblock.txg.get(),
        "guid_sum": uberblock.guid_sum.get(),
        "timestamp": uberblock.timestamp.get(),
        "mmp_magic": uberblock.mmp_magic.get(),
        "mmp_delay": uberblock.mmp_delay.get(),
        "mmp_config": uberblock.mmp_config.get(),
        "checkpoint_txg": uberblock.checkpoint_txg.get(),
        "rootbp": pointer(&uberblock.root),
    })
}

/// A list with its names and values; a name that comes twice has its last value. Lists are as deep
/// as their parser lets them be.
fn pairs(list: &NvList) -> Json {
    use verbs::dump::PairValue as Pair;
    let mut map = Map::new();
    for pair in list.pairs() {
        let value = match &pair.value {
            Pair::Boolean => json!(true),
            Pair::BooleanValue(v) => json!(v),
            Pair::Byte(v) | Pair::U8(v) => json!(v),
            Pair::I8(v) => json!(v),
            Pair::I16(v) => json!(v),
            Pair::U16(v) => json!(v),
            Pair::I32(v) => json!(v),
            Pair::U32(v) => json!(v),
            Pair::I64(v) | Pair::HrTime(v) => json!(v),
            Pair::U64(v) => json!(v),
            Pair::Double(v) => json!(f64::from_bits(*v)),
            Pair::String(v) => json!(crate::json::escaped(v)),
            Pair::ByteArray(v) | Pair::U8Array(v) => json!(super::text::hex(v)),
            Pair::I8Array(v) => json!(v),
            Pair::I16Array(v) => json!(v),
            Pair::U16Array(v) => json!(v),
            Pair::I32Array(v) => json!(v),
            Pair::U32Array(v) => json!(v),
            Pair::I64Array(v) => json!(v),
            Pair::U64Array(v) => json!(v),
            Pair::BooleanArray(v) => json!(v),
            Pair::StringArray(v) => {
                Json::Array(v.iter().map(|s| json!(crate::json::escaped(s))).collect())
            }
            Pair::List(list) => pairs(list),
            Pair::ListArray(lists) => Json::Array(lists.iter().map(pairs).collect()),
        };
        map.insert(crate::json::escaped(&pair.name), value);
    }
    Json::Object(map)
}
