//! What every door can ask of the engine: typed requests, typed reports.
