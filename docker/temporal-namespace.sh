#!/bin/sh
# Makes the namespace the service uses, once the Temporal server answers.
set -eu

until temporal operator cluster health; do
  sleep 2
done
temporal operator namespace describe --namespace default >/dev/null 2>&1 ||
  temporal operator namespace create --namespace default --retention 7d
