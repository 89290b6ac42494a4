#!/bin/sh
# Writes encoded.json: the event invoice.json as Python and Go encode it. Needs python3 with venv, go, and `npm install`.
set -eu
cd "$(dirname "$0")"
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/proto/webhook/v1"
cp invoice.proto "$work/proto"
cp ../../../../proto/webhook/v1/options.proto "$work/proto/webhook/v1"
npx buf build "$work/proto" -o "$work/set.binpb"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet protobuf==7.36.2
"$work/venv/bin/python" encode.py "$work/set.binpb" invoice.json > "$work/python.json"

cp encode.go "$work"
cd "$work"
go mod init encode
go get google.golang.org/protobuf@v1.36.11
go run encode.go set.binpb "$here/invoice.json" > go.json

node -e 'const [python, go] = process.argv.slice(1).map((file) => JSON.parse(require("fs").readFileSync(file, "utf8")));
  console.log(JSON.stringify({ ...python, ...go }, null, 2))' python.json go.json > "$here/encoded.json"
