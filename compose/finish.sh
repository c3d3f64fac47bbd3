#!/bin/sh
# The last step of every image: compiled source, a user without rights, and the folders that volumes are mounted on,
# since a new volume takes over the owner of the folder that it covers.
set -eu
python3 -m compileall -q common services
groupadd --gid 10001 dapo
useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin dapo
mkdir -p /work/runs /work/cache /work/claims /work/data
cp -r configs /work/configs
chown 10001:10001 /work/runs /work/cache /work/claims
