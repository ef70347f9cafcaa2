//! Object sets, dnodes, records and the objects built from them.
