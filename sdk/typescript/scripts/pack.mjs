// Makes the tarballs of a release: the package itself, and the package of one platform with the broker's binary.
//
//     node scripts/pack.mjs --binary ../../target/debug/handoffd [--platform linux-x64] [--out build/tarballs]
//
// The platform is this machine's unless said; the binary's version has to be the package's where it runs here.
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** Platforms whose package the main package names; npm installs the one that fits. */
const PLATFORMS = ["darwin-arm64", "darwin-x64", "linux-arm64", "linux-x64"];

const home = fileURLToPath(new URL("..", import.meta.url));
const here = `${process.platform}-${process.arch}`;
const { values } = parseArgs({
  options: {
    binary: { type: "string" },
    platform: { type: "string", default: here },
    out: { type: "string", default: join(home, "build/tarballs") },
  },
});
if (!values.binary || !PLATFORMS.includes(values.platform))
  throw new Error(`usage: pack.mjs --binary FILE [--platform ${PLATFORMS.join("|")}] [--out FOLDER]`);

const manifest = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
const { version, license, repository } = manifest;
if (values.platform === here) {
  const said = spawnSync(values.binary, ["--version"], { encoding: "utf8" }).stdout?.trim();
  if (said !== `handoffd ${version}`)
    throw new Error(`the binary says "${said}", and this package is ${version}`);
}

/** A fresh folder with a manifest and the licence. */
function stage(name, content) {
  const folder = join(home, "build/package", name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(content, null, 2)}\n`);
  copyFileSync(join(home, "../../LICENSE"), join(folder, "LICENSE"));
  // Made by scripts/sdk-packages; a package of a development build goes without them.
  const notices = join(home, "../../dist/sdk/THIRD-PARTY.txt");
  if (existsSync(notices)) copyFileSync(notices, join(folder, "THIRD-PARTY.txt"));
  return folder;
}

const { devDependencies: _, scripts: __, ...kept } = manifest;
const optionalDependencies = Object.fromEntries(PLATFORMS.map((each) => [`@handoffd/${each}`, version]));
const main = stage("handoffd", { ...kept, optionalDependencies });
for (const part of ["bin", "dist", "README.md"])
  cpSync(join(home, part), join(main, part), { recursive: true });

const [os, cpu] = values.platform.split("-");
const platform = stage(values.platform, {
  name: `@handoffd/${values.platform}`,
  version,
  description: `The broker's binary of handoffd for ${values.platform}.`,
  license,
  repository,
  os: [os],
  cpu: [cpu],
  preferUnplugged: true,
  files: ["bin", "LICENSE", "THIRD-PARTY.txt", "README.md"],
});
writeFileSync(
  join(platform, "README.md"),
  `# @handoffd/${values.platform}\n\nThe binary of the handoff broker for ${values.platform}. The package \`handoffd\` installs and starts it.\n`,
);
mkdirSync(join(platform, "bin"));
copyFileSync(values.binary, join(platform, "bin/handoffd"));
chmodSync(join(platform, "bin/handoffd"), 0o755);
// The auditor's binary travels with the broker's, where it was built.
const verifier = join(dirname(values.binary), "handoffd-verify");
if (existsSync(verifier)) {
  copyFileSync(verifier, join(platform, "bin/handoffd-verify"));
  chmodSync(join(platform, "bin/handoffd-verify"), 0o755);
}

mkdirSync(values.out, { recursive: true });
for (const folder of [main, platform]) {
  const { status, stdout } = spawnSync("npm", ["pack", "--silent", "--pack-destination", values.out], {
    cwd: folder,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (status !== 0) throw new Error(`npm pack failed in ${folder}`);
  console.log(join(values.out, stdout.trim()));
}
