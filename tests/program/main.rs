//! The binary as a user runs it: the demo, the README's session, and the commands that need no broker.

#![allow(unreachable_pub, reason = "not a library")]

mod answers;
mod demo;
mod init;
mod keys;
mod lint;
mod quickstart;
mod scan;
