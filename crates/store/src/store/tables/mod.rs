//! One file a table: its row, its columns, its decoder and its queries, for both databases. A query whose text differs has
//! both texts side by side.

pub mod caps;
pub mod contracts;
pub mod opinions;
pub mod refusals;
pub mod requests;
pub mod schemas;
pub mod streams;
