//! The judge: walks a pool by itself and says what is wrong with it.
