// Made by scripts/generate.mjs; changes by hand are lost.

/** The version of this package, and of the broker that it was made with. */
export const VERSION = "0.4.0";
