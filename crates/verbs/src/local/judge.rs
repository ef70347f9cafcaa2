//! `verify`: the judge's report in the words of the doors.

use crate::judge::{DeviceDamage, FileDamage, Progress, Verdict, Verify, VerifyReport};
use crate::{Doing, Error, Result, Why};

use super::Here;
use super::session::{locate, pool_error};

/// Runs the judge over a pool. The pool itself is not opened: a judge asks nobody.
pub(super) fn verify(
    here: &Here,
    request: &Verify,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<VerifyReport> {
    let mut located = locate(here, &request.name, &request.places)?;
    if located.is_held() {
        let why =
            "it is served, and changes while it is judged; stop the server, or export the pool";
        return Err(Error::cannot(Doing::Verify(request.name.clone()), Why::NotDone(why.into())));
    }
    for disk in &request.at_risk {
        let unknown = || Error::Other(format!("no such device in pool: {disk}"));
        located.without(disk).then_some(()).ok_or_else(unknown)?;
    }
    let found = located.found().ok_or_else(|| Error::open(&request.name, Why::NoPool))?;
    let doing = || Doing::Open(request.name.clone());
    let keep = request.keep.clone().map(verify::Keep::new);
    let past = here.rescue.as_ref().is_some_and(|rescue| rescue.txg.is_some());
    let options = verify::Options { memory: request.memory, keep, past, ..Default::default() };
    let mut told = |p: verify::Progress| progress(Progress { done: p.bytes, total: p.bytes_total });
    let report = verify::verify_pool(found, &options, &mut told).map_err(|error| match error {
        verify::VerifyError::Vdev(error) => pool_error(doing(), error.into()),
        verify::VerifyError::Abandoned => Error::Other(error.to_string()),
        kept => Error::cannot(Doing::Verify(request.name.clone()), Why::Damaged(kept.to_string())),
    })?;
    let files = report.lost_files().map(|file| FileDamage {
        dataset: file.dataset.clone(),
        path: file.path.clone(),
        bytes: file.lost_bytes,
    });
    let devices = report.devices.iter().map(|device| DeviceDamage {
        device: device.device.clone(),
        guid: device.guid,
        missing: device.missing,
        labels: device.labels.clone(),
        read_errors: device.read_errors,
        bad_blocks: device.bad_blocks,
        lacks_txgs: device.lacks_txgs,
    });
    Ok(VerifyReport {
        name: request.name.clone(),
        verdict: match report.verdict {
            verify::Verdict::Clean => Verdict::Clean,
            verify::Verdict::Whole => Verdict::Whole,
            verify::Verdict::Lost => Verdict::Lost,
        },
        txg: report.txg,
        blocks: report.blocks,
        bytes: report.bytes,
        datasets: report.datasets,
        encrypted: report.encrypted.clone(),
        devices: devices.collect(),
        files: files.collect(),
        findings: report.findings.iter().map(|f| f.text.clone()).collect(),
        notes: report.notes,
    })
}
