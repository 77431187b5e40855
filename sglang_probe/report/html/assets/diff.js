// A comparison: what differs first, then the runs side by side.

function diffParts() {
  return [];
}
