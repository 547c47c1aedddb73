//! Findings of group 5: at the door.
