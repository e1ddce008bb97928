// Positions on the page. Time runs downwards, but not to scale: every sent packet and every remark
// has a row, long silences are shortened, and arrivals lie between rows.

const whole = JSON.parse(document.getElementById("data").textContent);
/// The run without one packet, if the address names that: #lose-3.
const lostNumber = Number((location.hash.match(/^#lose-(\d+)$/) || [])[1]);
const variant = whole.losses.find(([number]) => number === lostNumber);
const data = variant ? variant[1] : whole;
document.getElementById("data").textContent = ""; // the parsed copy is enough
const P = data.packets, R = data.remarks, S = P.strings;
const COUNT = P.from.length;
const LOST = 1, DAMAGED = 2, AGAIN = 4;
const isPair = data.hosts.length === 2;
const ROW = isPair ? 27 : 42, REMARK = 21, REMARK_LINE = 16, PASS = 38, TOP = 14;

/// Index of each packet's first value.
const valueStart = new Uint32Array(COUNT + 1);
for (let i = 0; i < COUNT; i++) {
  let fields = 0;
  for (const layer of P.shapes[P.shape[i]]) fields += layer[3].length;
  valueStart[i + 1] = valueStart[i] + fields;
}

/// Rows by time: { t, packet } or { t, remark }.
function rowsOf(packets, remarks) {
  const rows = [];
  for (let i = packets[0]; i < packets[1]; i++) rows.push({ t: P.sent[i], key: 2 * i + 1, packet: i, remark: -1 });
  for (let i = remarks[0]; i < remarks[1]; i++) rows.push({ t: R.at[i], key: 2 * R.after[i], packet: -1, remark: i });
  rows.sort((a, b) => a.t - b.t || a.key - b.key || a.remark - b.remark);
  return rows;
}

/// A silence is long if it is far longer than the usual one of this ladder.
function longSilence(rows) {
  const gaps = [];
  for (let i = 1; i < rows.length; i++) if (rows[i].t > rows[i - 1].t) gaps.push(rows[i].t - rows[i - 1].t);
  gaps.sort((a, b) => a - b);
  return gaps.length ? Math.max(8 * gaps[gaps.length >> 1], 1000) : Infinity;
}

const layout = {
  sentY: new Float64Array(COUNT),      // y of the sender's end
  arriveY: new Float64Array(COUNT),    // y of the receiver's end, also of a lost packet
  remarkY: new Float64Array(R.at.length),
  remarkHeight: new Float64Array(R.at.length),
  remarkReach: new Float64Array(R.at.length), // maximum y of this and all earlier remarks
  breaks: [],                          // [top, bottom] of the narration between rows
  passes: [],                          // { y, nanos }
  marks: [],                           // { y, t }: time labels
  reach: new Float64Array(COUNT),      // maximum arriveY of this and all earlier packets
  height: 0,
};

/// Computes the layout. `cards` are the elements of the narration with their heights; `room` is the
/// width of remarks; in a `narrow` window each row has the whole width.
function computeLayout(cards, room, narrow) {
  layout.remarkY.fill(-1e9); // remarks before the first packet are not drawn
  layout.breaks.length = 0;
  layout.passes.length = 0;
  layout.marks.length = 0;
  const sections = data.sections.length ? data.sections
    : [{ packets: [0, COUNT], remarks: [0, R.at.length] }];
  const all = rowsOf([0, COUNT], [0, R.at.length]);
  const silence = longSilence(all);
  let y = TOP, last = -1, card = 0;
  const times = [], ys = []; // rows in order, to place arrivals between
  const place = (kind, section) => {
    while (card < cards.length && cards[card].kind === kind && cards[card].section === section) {
      const it = cards[card++], top = y;
      y += 14;
      it.element.style.top = y + "px";
      y += it.height + 18;
      const before = layout.breaks[layout.breaks.length - 1];
      if (before && before[1] >= top) before[1] = y;
      else layout.breaks.push([top, y]);
    }
  };
  sections.forEach((section, m) => {
    place("say", m);
    const rows = rowsOf(section.packets, section.remarks);
    for (let first = 0; first < rows.length;) {
      const t = rows[first].t;
      if (last >= 0 && t - last > silence) {
        layout.passes.push({ y: y + PASS / 2 - 6, nanos: t - last });
        y += PASS;
      }
      // Remarks of different hosts at the same instant stand side by side.
      const free = new Float64Array(data.hosts.length).fill(y);
      let end = first;
      for (; end < rows.length && rows[end].t === t; end++) {
        const { packet, remark } = rows[end];
        if (remark >= 0) {
          const host = R.host[remark];
          const lines = Math.min(Math.ceil(R.words[remark].length * 7 / room), 3);
          const height = REMARK + (Math.max(lines, 1) - 1) * REMARK_LINE;
          if (narrow) free.fill(Math.max(...free));
          layout.remarkY[remark] = free[host];
          layout.remarkHeight[remark] = height;
          if (narrow) free.fill(free[host] + height);
          else free[host] += height;
        } else if (narrow || P.took[packet] < 0 && !(P.flags[packet] & LOST) || Math.abs(P.to[packet] - P.from[packet]) > 1) {
          // An arrow without a slope, or across the lanes of others, needs the whole width.
          const top = Math.max(...free);
          layout.sentY[packet] = top + ROW / 2;
          free.fill(top + ROW);
        } else {
          layout.sentY[packet] = free[P.from[packet]] + ROW / 2;
          free[P.from[packet]] += ROW;
        }
      }
      layout.marks.push({ y: y + ROW / 2, t });
      times.push(t);
      ys.push(y + REMARK / 2);
      last = t;
      first = end;
      y = Math.max(...free);
    }
    place("shown", m);
    place("then", m);
  });
  place("question", -1);
  layout.height = y + 60;
  let lowest = -1e9;
  for (let i = 0; i < R.at.length; i++) layout.remarkReach[i] = lowest = Math.max(lowest, layout.remarkY[i]);
  placeArrivals(times, ys, narrow);
}

function placeArrivals(times, ys, narrow) {
  let reach = 0;
  const usual = {}; // last slope of arrows between two hosts
  for (let i = 0; i < COUNT; i++) {
    const pair = P.from[i] + ">" + P.to[i];
    const sent = layout.sentY[i];
    let target = sent;
    if (P.took[i] > 0) {
      const t = P.sent[i] + P.took[i];
      // The first row at or after t.
      let low = 0, high = times.length;
      while (low < high) { const mid = (low + high) >> 1; if (times[mid] < t) low = mid + 1; else high = mid; }
      if (low < times.length && times[low] === t) target = ys[low];
      else if (low === times.length) target = (ys[low - 1] ?? sent) + ROW;
      else if (low === 0) target = sent;
      else {
        const share = (t - times[low - 1]) / (times[low] - times[low - 1]);
        target = ys[low - 1] + Math.min(share * (ys[low] - ys[low - 1]), ROW * 1.2);
      }
      target = Math.max(target, sent + 4);
      usual[pair] = target - sent - brokenBy(sent, target);
    } else if (P.flags[i] & LOST) {
      target = sent + Math.max(22, usual[pair] ?? 0);
    }
    if (narrow) target = sent + 4;
    layout.arriveY[i] = target;
    reach = Math.max(reach, target);
    layout.reach[i] = reach;
  }
}

/// Returns the first remark that may lie below y.
layout.firstRemark = (y) => {
  let low = 0, high = R.at.length;
  while (low < high) { const mid = (low + high) >> 1; if (layout.remarkReach[mid] < y) low = mid + 1; else high = mid; }
  return low;
};

/// Returns the height of the narration between two positions.
function brokenBy(from, to) {
  let sum = 0;
  for (const [top, bottom] of layout.breaks) if (top >= from && bottom <= to) sum += bottom - top;
  return sum;
}

/// Returns the segments of an arrow: a straight line that passes behind the narration.
function piecesOf(x1, y1, x2, y2) {
  const drop = y2 - y1 - brokenBy(y1, y2);
  const pieces = [];
  let x = x1, y = y1, done = 0;
  for (const [top, bottom] of layout.breaks) {
    if (top < y1 || bottom > y2) continue;
    done += top - y;
    const next = x1 + (x2 - x1) * (drop > 0 ? done / drop : 0.5);
    pieces.push([x, y, next, top]);
    x = next;
    y = bottom;
  }
  pieces.push([x, y, x2, y2]);
  return pieces;
}

/// Returns the first packet whose arrow can reach below y.
function firstReaching(y) {
  let low = 0, high = COUNT;
  while (low < high) { const mid = (low + high) >> 1; if (layout.reach[mid] < y) low = mid + 1; else high = mid; }
  return low;
}

function span(nanos) {
  if (nanos < 1000) return nanos + " ns";
  if (nanos < 1e6) return trim(nanos / 1e3) + " µs";
  if (nanos < 1e9) return trim(nanos / 1e6) + " ms";
  return trim(nanos / 1e9) + " s";
}
function trim(number) { return number.toFixed(3).replace(/\.?0+$/, ""); }
function clock(nanos) {
  return nanos < 1e8 ? (nanos / 1e3).toFixed(3) + " µs" : nanos < 1e11 ? (nanos / 1e6).toFixed(3) + " ms" : (nanos / 1e9).toFixed(6) + " s";
}
function stateOf(i) {
  const flags = P.flags[i];
  return [flags & LOST ? "lost" : "", flags & DAMAGED ? "damaged" : "", flags & AGAIN ? "again" : ""].filter(Boolean);
}
/// Returns a number of 24 bits as roce dissect prints it.
function hex24(number) { return "0x" + number.toString(16).padStart(6, "0"); }
function psnWords(i) { return data.hex_psns ? hex24(P.psn[i]) : String(P.psn[i]); }
function packetWords(i) {
  const psn = P.psn[i] >= 0 ? " PSN " + psnWords(i) : "";
  return `#${P.number[i]} ${S[P.name[i]]}${psn} ${S[P.facts[i]]} ${data.hosts[P.from[i]]} ${data.hosts[P.to[i]]} ${stateOf(i).join(" ")} ${S[P.findings[i]]}`;
}
/// Returns the text that a search matches: PSN and queue pair decimal and hexadecimal.
function searchWords(i) {
  const both = (number) => number < 0 ? "" : ` ${number} ${hex24(number)}`;
  return packetWords(i) + both(P.psn[i]) + both(P.qp[i]);
}
