// Undoes gpuyard.report.schedules.packing: base64, deflate, planes of bytes, zigzag, differences.

async function inflate(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let k = 0; k < binary.length; k++) bytes[k] = binary.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function packedText(name) {
  return document.getElementById(`packed-${name}`).textContent;
}

async function unpackJson(name) {
  return JSON.parse(new TextDecoder().decode(await inflate(packedText(name))));
}

/** Columns by name, as arrays of whole numbers. */
async function unpackColumns(name, layout) {
  const bytes = await inflate(packedText(name));
  const columns = {};
  let at = 0;
  for (const [column, count, width, differences] of layout) {
    const values = new Int32Array(count);
    let total = 0;
    for (let k = 0; k < count; k++) {
      let folded = 0;
      for (let plane = 0; plane < width; plane++) folded |= bytes[at + plane * count + k] << (8 * plane);
      const value = (folded >>> 1) ^ -(folded & 1);
      values[k] = differences ? (total += value) : value;
    }
    columns[column] = values;
    at += count * width;
  }
  return columns;
}
