// The panel beside the ladder: layers, fields and bytes of one packet.

const detail = document.getElementById("detail");
const BYTES_AT_FIRST = 160;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function bytesOf(i) {
  const text = atob(P.bytes[i]);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return bytes;
}

function showDetail(i) {
  const parts = [];
  const close = element("button", "close", "✕");
  close.title = "Close (Esc)";
  close.addEventListener("click", closeDetail);
  parts.push(close);
  const title = element("h2");
  title.append(element("small", "", "#" + P.number[i]), S[P.name[i]]);
  parts.push(title);
  const words = { lost: "lost on the way", damaged: "damaged", again: "sent again" };
  for (const state of stateOf(i)) parts.push(element("span", "badge " + state, words[state]));
  const meta = element("dl", "meta");
  const line = (name, value) => meta.append(element("dt", "", name), element("dd", "", value));
  line("way", `${data.hosts[P.from[i]]} → ${data.hosts[P.to[i]]}`);
  line(P.took[i] >= 0 || P.flags[i] & LOST ? "left" : "seen", clock(P.sent[i]));
  if (P.took[i] >= 0) line("arrived", `${clock(P.sent[i] + P.took[i])}, ${span(P.took[i])} later`);
  for (const [place, lag] of P.copies) if (place === i) line("and again", clock(P.sent[i] + lag));
  if (P.psn[i] >= 0) line("PSN", `${hex24(P.psn[i])} (${P.psn[i]})`);
  if (P.qp[i] >= 0) line("destination queue pair", `${hex24(P.qp[i])} (${P.qp[i]})`);
  if (S[P.facts[i]]) line("facts", S[P.facts[i]]);
  line("frame", P.len[i] + " bytes");
  parts.push(meta);
  if (!variant && whole.losses.some(([number]) => number === P.number[i])) {
    const lose = element("button", "lose", "Lose this packet");
    lose.addEventListener("click", () => { location.hash = "lose-" + P.number[i]; });
    parts.push(lose);
  }
  if (S[P.findings[i]]) parts.push(element("p", "found", S[P.findings[i]]));
  const bytes = bytesOf(i);
  const dump = element("div", "bytes");
  const light = (from, to, className) => {
    for (const it of dump.querySelectorAll("i." + className)) it.classList.remove(className);
    for (const it of dump.querySelectorAll("i")) {
      const at = Number(it.dataset.at);
      if (at >= from && at < to) it.classList.add(className);
    }
  };
  let value = valueStart[i];
  const rows = [];
  for (const [name, start, end, fields] of P.shapes[P.shape[i]]) {
    const layer = element("details", "layer");
    layer.open = true;
    const summary = element("summary", "", S[name]);
    summary.append(element("small", "", `${end - start} bytes`));
    summary.addEventListener("mouseenter", () => light(start, end, "in"));
    summary.addEventListener("mouseleave", () => light(0, 0, "in"));
    layer.append(summary);
    for (const [field, first, behind] of fields) {
      const row = element("div", "row");
      row.append(element("span", "", S[field]), element("span", "", S[P.values[value++]]));
      row.addEventListener("mouseenter", () => light(first, behind, "lit"));
      row.addEventListener("mouseleave", () => light(0, 0, "lit"));
      rows.push({ row, first, behind });
      layer.append(row);
    }
    parts.push(layer);
  }
  const fill = (count) => {
    dump.textContent = "";
    for (let at = 0; at < Math.min(count, bytes.length); at += 16) {
      const line = element("div", "line");
      line.append(element("span", "at", at.toString(16).padStart(4, "0")));
      const hex = element("span"), text = element("span");
      for (let k = at; k < Math.min(at + 16, bytes.length); k++) {
        const byte = element("i", "", bytes[k].toString(16).padStart(2, "0"));
        byte.dataset.at = k;
        hex.append(byte);
        if (k % 8 === 7 && k % 16 !== 15) hex.append(" ");
        text.append(bytes[k] >= 32 && bytes[k] < 127 ? String.fromCharCode(bytes[k]) : "·");
      }
      line.append(hex, text);
      dump.append(line);
    }
    if (count < bytes.length) {
      const more = element("button", "", `show all ${bytes.length} bytes`);
      more.addEventListener("click", () => fill(bytes.length));
      dump.append(more);
    } else if (bytes.length < P.len[i]) {
      dump.append(element("div", "note", `The first ${bytes.length} of ${P.len[i]} bytes are kept on this page.`));
    }
  };
  fill(BYTES_AT_FIRST);
  dump.addEventListener("mouseover", (event) => {
    const at = Number(event.target.dataset?.at ?? -1);
    let best = null;
    for (const it of rows) {
      const holds = at >= it.first && at < it.behind;
      it.row.classList.toggle("lit", holds);
      if (holds) best = best ?? it;
    }
    if (best) light(best.first, best.behind, "in");
  });
  parts.push(dump);
  const wasHidden = detail.hidden;
  detail.replaceChildren(...parts);
  detail.hidden = false;
  detail.dataset.packet = i + 1;
  detail.scrollTop = 0;
  if (wasHidden) relayout();
}

function closeDetail() {
  if (detail.hidden) return;
  detail.hidden = true;
  delete detail.dataset.packet;
  relayout();
  view.focus();
}
