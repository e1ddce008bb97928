# Runs steps as a runner does: each in a shell of its own, with the variables and folders that the steps
# before have told.
set -eu
useradd --create-home runner
echo 'runner ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/runner
export GITHUB_ACTION_PATH=/check/action GITHUB_WORKSPACE=/workspace CI=true
export GITHUB_ENV=/told/env GITHUB_PATH=/told/path GITHUB_OUTPUT=/told/output
mkdir /workspace /told
touch /told/env /told/path /told/output
chown -R runner /workspace /told

# The script of the step is the standard input.
step() {
    cat >/told/step
    cat >/told/run <<'END'
while read -r line; do export "$line"; done <"$GITHUB_ENV"
while read -r folder; do PATH=$folder:$PATH; done <"$GITHUB_PATH"
cd "$GITHUB_WORKSPACE"
exec sh -e /told/step
END
    "$@" sh /told/run
}

step_of_runner() {
    step setpriv --reuid runner --regid runner --init-groups env HOME=/home/runner
}
