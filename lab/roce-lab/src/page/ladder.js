// Draws the visible part of the ladder, and handles keys and clicks.

const view = document.getElementById("view"), canvas = document.getElementById("canvas");
const paper = document.getElementById("paper"), heads = document.getElementById("heads");
const search = document.getElementById("search"), found = document.getElementById("found");
const map = document.getElementById("map");
/// In a narrower window, remarks stand between the life lines, not beside them.
let isNarrow = false;
let selected = -1, matches = null, matchSet = null, drawn = [0, 0], columns = [], margin = 0, width = 0;
const OVERSCAN = 500, TIME = 92;
/// Labels of arrows steeper than this, in degrees, are horizontal.
const STEEP = 38;
/// Width of a label character, and minimum distance between the centres of two labels, in pixels.
const LETTER = 7.4, CLEAR = 12;
/// Position of each label on its arrow, from 0 at the sender to 1.
const wordsShare = new Float64Array(COUNT);

/// Narration cards: created once, measured, then placed by the layout.
const cards = [];
function buildCards() {
  const add = (kind, section, className, fill) => {
    const card = element("div", "card " + className);
    fill(card);
    canvas.append(card);
    cards.push({ kind, section, element: card, height: 0 });
  };
  const prose = (card, text) => {
    for (const paragraph of text.split("\n\n")) card.append(element("p", "", paragraph.replace(/\s+/g, " ")));
  };
  data.sections.forEach((section, m) => {
    if (section.say) add("say", m, "say", (card) => prose(card, section.say));
    for (const [title, lines] of section.shown) {
      add("shown", m, "shown", (card) => card.append(element("h3", "", title), element("pre", "", lines.join("\n"))));
    }
    for (const [title, svg] of section.plots) {
      add("shown", m, "shown plot", (card) => {
        card.innerHTML = svg;
        card.firstElementChild.setAttribute("role", "img");
        card.firstElementChild.setAttribute("aria-label", title);
      });
    }
    if (section.then) add("then", m, "then", (card) => prose(card, section.then));
  });
  if (data.question) {
    add("question", -1, "question", (card) => {
      card.append(element("h3", "", "Question"));
      prose(card, data.question.ask);
      const answer = element("details");
      if (data.question.reply && data.question.accept.length) card.append(replyForm(data.question, answer));
      answer.append(element("summary", "", "Answer"));
      prose(answer, data.question.answer);
      answer.addEventListener("toggle", relayout);
      card.append(answer);
    });
  }
}

function relayout() {
  const hosts = data.hosts.length;
  heads.hidden = map.hidden = !hosts;
  document.querySelector(".search").hidden = !hosts;
  isNarrow = isPair && view.clientWidth < 640;
  const least = isNarrow ? 300 : isPair ? 640 : !hosts ? 300 : TIME + 40 + hosts * 150;
  width = Math.max(view.clientWidth, least);
  canvas.style.width = width + "px";
  canvas.style.setProperty("--view", view.clientWidth + "px");
  heads.style.width = width + "px";
  margin = isPair ? Math.min(Math.max(width * 0.24, 150), 330) : 0;
  const left = isNarrow ? TIME + 8 : isPair ? Math.max(margin, 130) + 26 : TIME + 60;
  const right = isNarrow ? 36 : isPair ? margin + 26 : 190;
  columns = data.hosts.map((_, h) => left + (hosts === 1 ? 0 : h * (width - left - right) / (hosts - 1)));
  heads.replaceChildren(...data.hosts.map((name, h) => {
    const head = element("span", "", name);
    head.style.left = columns[h] + "px";
    return head;
  }));
  for (const card of cards) card.height = card.element.offsetHeight;
  computeLayout(cards, Math.min(...data.hosts.map((_, h) => remarkRoom(h))), isNarrow);
  placeWords();
  canvas.style.height = layout.height + "px";
  draw(true);
  drawMap();
}

/// Returns the width of a host's remarks: beside the ladder of two hosts, else up to the next host.
function remarkRoom(host) {
  if (isNarrow) return columns[1] - columns[0] - 24;
  if (isPair) return host === 0 ? columns[0] - 96 : width - columns[1] - 24;
  return host === columns.length - 1 ? width - columns[host] - 24 : columns[1] - columns[0] - 22;
}

/// Draws the part in and near the window; the document has no other part.
function draw(force) {
  const top = view.scrollTop, bottom = top + view.clientHeight;
  if (!force && top - 100 >= drawn[0] && bottom + 100 <= drawn[1]) return;
  const from = Math.max(0, top - OVERSCAN), to = Math.min(layout.height, bottom + OVERSCAN);
  drawn = [from <= 0 ? -1e9 : from, to >= layout.height ? 1e9 : to];
  paper.style.top = from + "px";
  paper.setAttribute("width", width);
  paper.setAttribute("height", Math.max(to - from, 0));
  paper.setAttribute("viewBox", `0 ${from} ${width} ${Math.max(to - from, 1)}`);
  const parts = [];
  // Life lines end where the last narration begins.
  const lastBreak = layout.breaks[layout.breaks.length - 1];
  const end = Math.min(to, data.question && lastBreak ? lastBreak[0] : layout.height);
  for (const x of columns) parts.push(svgElement("line", { class: "life", x1: x, x2: x, y1: from, y2: Math.max(end, from) }));
  for (const pass of within(layout.passes, from, to)) {
    parts.push(svgElement("line", { class: "passline", x1: TIME, x2: width - 30, y1: pass.y, y2: pass.y }));
    const text = svgElement("text", { class: "pass", x: (columns[0] + columns[columns.length - 1]) / 2, y: pass.y + 14, "text-anchor": "middle" });
    text.textContent = `${span(pass.nanos)} pass`;
    parts.push(text);
  }
  let lastMark = -1e9;
  for (const mark of within(layout.marks, from, to)) {
    if (mark.y - lastMark < 15) continue;
    lastMark = mark.y;
    const text = svgElement("text", { class: "time", x: 14, y: mark.y + 4 });
    text.textContent = clock(mark.t);
    parts.push(text);
  }
  for (let i = firstReaching(from); i < COUNT && layout.sentY[i] <= to + 600; i++) {
    if (layout.sentY[i] <= to && layout.arriveY[i] >= from) parts.push(drawPacket(i));
  }
  drawRemarks(from, to, parts);
  paper.replaceChildren(...parts);
}

function within(list, from, to) {
  let low = 0, high = list.length;
  while (low < high) { const mid = (low + high) >> 1; if (list[mid].y < from - 40) low = mid + 1; else high = mid; }
  const some = [];
  for (; low < list.length && list[low].y <= to; low++) some.push(list[low]);
  return some;
}

function drawPacket(i) {
  const classes = ["packet", data.classes[P.class[i]], ...stateOf(i)];
  if (matchSet) classes.push(matchSet.has(i) ? "hit" : "dim");
  if (i === selected) classes.push("selected");
  const x1 = columns[P.from[i]], x2 = columns[P.to[i]], y1 = layout.sentY[i], y2 = layout.arriveY[i];
  const isLost = P.flags[i] & LOST;
  const group = svgElement("g", { class: classes.join(" "), "data-packet": i + 1, role: "button", "aria-label": packetWords(i) });
  if (x1 === x2) { // a packet to its own host: a short hook
    group.append(svgElement("path", { class: "shaft", d: `M${x1},${y1} c60,0 60,14 0,14` }));
    group.append(label(i, x1 + 54, y1 + 10, 0, "start"));
    return group;
  }
  const { pieces, ux, uy } = shaftOf(i), last = pieces[pieces.length - 1];
  const way = pieces.map(([a, b, c, d], k) => {
    const short = !isLost && k === pieces.length - 1 ? 8 : 0;
    return `M${a},${b} L${c - ux * short},${d - uy * short}`;
  }).join(" ");
  group.append(svgElement("path", { class: "reach", d: way }), svgElement("path", { class: "shaft", d: way }));
  if (isLost) {
    const [, , cx, cy] = last, r = 5;
    group.append(svgElement("path", { class: "cross", d: `M${cx - r},${cy - r} L${cx + r},${cy + r} M${cx + r},${cy - r} L${cx - r},${cy + r}` }));
  } else {
    const tip = [x2 - ux * 1.5, y2 - uy * 1.5], side = 4.2;
    group.append(svgElement("polygon", { class: "head", points: `${tip} ${[tip[0] - ux * 10 - uy * side, tip[1] - uy * 10 + ux * side]} ${[tip[0] - ux * 10 + uy * side, tip[1] - uy * 10 - ux * side]}` }));
  }
  const { x, y, angle } = wordsAt(i, wordsShare[i]);
  group.append(label(i, x, y - 5, angle, "middle"));
  return group;
}

/// Returns the segments of a packet's arrow, and the direction of the last.
function shaftOf(i) {
  const pieces = piecesOf(columns[P.from[i]], layout.sentY[i], columns[P.to[i]], layout.arriveY[i]);
  const last = pieces[pieces.length - 1], dx = last[2] - last[0], dy = last[3] - last[1];
  const length = Math.hypot(dx, dy) || 1;
  if (P.flags[i] & LOST) {
    last[2] = last[0] + dx * 0.66;
    last[3] = last[1] + dy * 0.66;
  }
  return { pieces, ux: dx / length, uy: dy / length };
}

/// Returns the point at this share of the longest segment of a packet's arrow, and the rotation of
/// its label.
function wordsAt(i, share) {
  const [a, b, c, d] = shaftOf(i).pieces.reduce((best, it) => Math.abs(it[2] - it[0]) > Math.abs(best[2] - best[0]) ? it : best);
  const angle = Math.atan2(d - b, c - a) * 180 / Math.PI, upright = Math.abs(angle) > 90 ? angle - Math.sign(angle) * 180 : angle;
  return { x: a + (c - a) * share, y: b + (d - b) * share, angle: Math.abs(upright) > STEEP ? 0 : upright, isSteep: Math.abs(upright) > STEEP };
}

/// Places each label on its arrow. Labels stand nearer to the sender, so labels of packets that
/// cross do not overlap. With several hosts, arrows cross the lanes of others: then a label stands
/// where it does not overlap an earlier one.
function placeWords() {
  let placed = []; // labels and remarks as lines: [x1, y1, x2, y2]
  let remark = 0;
  for (let i = 0; i < COUNT; i++) {
    const hops = Math.abs(P.to[i] - P.from[i]);
    if (!hops) continue;
    const usual = hops > 1 ? 0.4 / hops : P.flags[i] & LOST ? 0.55 : wordsAt(i, 0.5).isSteep ? 0.3 : 0.38;
    wordsShare[i] = usual;
    if (isPair) continue;
    const top = layout.sentY[i], bottom = layout.arriveY[i];
    placed = placed.filter((it) => Math.max(it[1], it[3]) > top - 3 * ROW);
    for (; remark < R.at.length && layout.remarkY[remark] < bottom + ROW; remark++) {
      const x = columns[R.host[remark]] + 12, y = layout.remarkY[remark] + 18;
      placed.push([x, y, x + Math.min(R.words[remark].length * 7, remarkRoom(R.host[remark])), y]);
    }
    const half = pieceWords(i).reduce((sum, [, words]) => sum + words.length, 0) * LETTER / 2;
    let best = null, clearest = -1;
    for (const share of [usual, ...sharesAlong(hops)]) {
      const { x, y, angle } = wordsAt(i, share), turn = angle * Math.PI / 180;
      const dx = Math.cos(turn) * half, dy = Math.sin(turn) * half;
      // The centre of the letters, which stand on the arrow.
      const mx = x + 5 * Math.sin(turn), my = y - 5 - 5 * Math.cos(turn);
      const line = [mx - dx, my - dy, mx + dx, my + dy];
      const clear = placed.reduce((least, it) => Math.min(least, distance(line, it)), CLEAR);
      if (clear > clearest) [best, clearest, wordsShare[i]] = [line, clear, share];
      if (clear >= CLEAR) break;
    }
    placed.push(best);
  }
}

/// Returns other positions to try: some in each lane that the arrow crosses.
function sharesAlong(hops) {
  const shares = [];
  for (let lane = 0; lane < hops; lane++) for (const within of [0.3, 0.5, 0.62, 0.74, 0.4, 0.56, 0.68, 0.22, 0.8, 0.26, 0.34, 0.45, 0.77, 0.83]) shares.push((lane + within) / hops);
  return shares;
}

/// Returns the distance between two lines.
function distance([ax, ay, bx, by], [cx, cy, dx, dy]) {
  const side = (x, y, px, py, qx, qy) => (px - x) * (qy - y) - (py - y) * (qx - x);
  const crosses = side(ax, ay, bx, by, cx, cy) * side(ax, ay, bx, by, dx, dy) < 0
    && side(cx, cy, dx, dy, ax, ay) * side(cx, cy, dx, dy, bx, by) < 0;
  if (crosses) return 0;
  const toLine = (x, y, px, py, qx, qy) => {
    const vx = qx - px, vy = qy - py;
    const share = Math.min(Math.max(((x - px) * vx + (y - py) * vy) / (vx * vx + vy * vy || 1), 0), 1);
    return Math.hypot(px + vx * share - x, py + vy * share - y);
  };
  return Math.min(toLine(ax, ay, cx, cy, dx, dy), toLine(bx, by, cx, cy, dx, dy), toLine(cx, cy, ax, ay, bx, by), toLine(dx, dy, ax, ay, bx, by));
}

/// Returns the parts of a packet's label with their classes.
function pieceWords(i) {
  const room = Math.abs(columns[1 % columns.length] - columns[0]) || 300;
  const pieces = [["n", `${P.flags[i] & AGAIN ? "↻ " : ""}#${P.number[i]}  `], ["name", S[P.name[i]]]];
  if (P.psn[i] >= 0) pieces.push(["", ` PSN ${psnWords(i)}`]);
  const facts = S[P.facts[i]];
  if (facts && (facts.length + S[P.name[i]].length + 16) * 6.6 < room) pieces.push(["facts", `  ${facts}`]);
  return pieces;
}

function label(i, x, y, angle, anchor) {
  const text = svgElement("text", { x, y, "text-anchor": anchor, transform: `rotate(${angle.toFixed(2)} ${x} ${y + 5})` });
  for (const [className, words] of pieceWords(i)) {
    const piece = svgElement("tspan", { class: className });
    piece.textContent = words;
    text.append(piece);
  }
  return text;
}

function drawRemarks(from, to, parts) {
  for (let i = layout.firstRemark(from - 60); i < R.at.length; i++) {
    const host = R.host[i], y = layout.remarkY[i], height = layout.remarkHeight[i];
    const isLeft = isPair && host === (isNarrow ? 1 : 0); // left of its life line
    if (y > to + 600) break; // remarks of one instant are sorted by host, not by position
    if (y < from - 60 || y > to) continue;
    const room = remarkRoom(host);
    const x = isLeft ? columns[host] - 12 - room : columns[host] + 12;
    const box = svgElement("foreignObject", { x, y: y + 1, width: Math.max(room, 60), height });
    const words = element("div", `remark ${R.class[i]}${isLeft ? " right" : ""}`, R.words[i]);
    words.title = R.words[i];
    box.append(words);
    parts.push(box, svgElement("circle", { class: "dot " + R.class[i], cx: columns[host], cy: y + 9.5, r: R.class[i] === "minor" ? 2.4 : 3.4 }));
  }
}

function drawMap() {
  const height = view.clientHeight, scale = devicePixelRatio || 1;
  map.width = 14 * scale;
  map.height = height * scale;
  map.style.height = height + "px";
  const ink = map.getContext("2d"), style = getComputedStyle(document.documentElement);
  ink.scale(scale, scale);
  const tone = (name) => style.getPropertyValue(name).trim();
  const y = (at) => at / layout.height * height;
  ink.fillStyle = tone("--line");
  ink.fillRect(0, y(view.scrollTop), 14, Math.max(y(view.clientHeight), 3));
  const mark = (i, colour, left, wide) => { ink.fillStyle = colour; ink.fillRect(left, y(layout.sentY[i]), wide, 1.5); };
  const bad = tone("--lost"), again = tone("--again"), hit = tone("--accent");
  for (let i = 0; i < COUNT; i++) {
    if (P.flags[i] & AGAIN) mark(i, again, 3, 8);
    if (P.flags[i] & (LOST | DAMAGED) || data.classes[P.class[i]] === "nak") mark(i, bad, 1, 12);
  }
  if (matches) for (const i of matches) mark(i, hit, 9, 5);
}

function select(i, keep) {
  if (i < -1 || i >= COUNT) return;
  selected = i;
  if (i >= 0) {
    // In a narrow window the panel covers the lower part.
    const share = !detail.hidden && detail.offsetWidth > view.clientWidth * 0.9 ? 0.42 : 1;
    const top = view.scrollTop, y = layout.sentY[i], height = view.clientHeight * share;
    if (y < top + 70 || y > top + height - 60) view.scrollTop = Math.max(0, y - height / 2.6);
    if (!detail.hidden) showDetail(i);
    showInRing(i);
  }
  draw(true);
  drawMap();
  if (!keep) view.focus({ preventScroll: true });
}

function runSearch() {
  // A number finds equal numbers only, not longer ones that contain it.
  const words = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean)
    .map((word) => /^0x[0-9a-f]{1,6}$/.test(word) ? "0x" + word.slice(2).padStart(6, "0") : word)
    .map((word) => /^[0-9]+$/.test(word) ? new RegExp(`\\b${word}\\b`) : word);
  matches = matchSet = null;
  if (words.length) {
    matches = [];
    for (let i = 0; i < COUNT; i++) {
      const text = searchWords(i).toLowerCase();
      if (words.every((word) => word.test ? word.test(text) : text.includes(word))) matches.push(i);
    }
    matchSet = new Set(matches);
  }
  tellMatches();
  draw(true);
  drawMap();
}

function tellMatches() {
  const place = matches ? matches.indexOf(selected) : -1;
  found.textContent = !matches ? "" : place >= 0 ? `${place + 1} of ${matches.length}` : `${matches.length} found`;
}

function nextMatch(forward) {
  if (!matches || !matches.length) return;
  const after = matches.filter((i) => forward ? i > selected : i < selected);
  select(after.length ? after[forward ? 0 : after.length - 1] : matches[forward ? 0 : matches.length - 1], true);
  tellMatches();
}

function themeNow() {
  return document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
function toggleTheme() {
  document.documentElement.dataset.theme = themeNow() === "dark" ? "light" : "dark";
  drawMap();
}

document.getElementById("title").textContent = data.title;
document.getElementById("subtitle").textContent = data.subtitle + (data.left_out ? `; the first ${COUNT} are on this page` : "");
document.getElementById("theme").addEventListener("click", toggleTheme);
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
search.addEventListener("input", runSearch);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { nextMatch(!event.shiftKey); view.focus(); event.preventDefault(); }
});
view.addEventListener("scroll", () => { draw(false); drawMap(); }, { passive: true });
paper.addEventListener("click", (event) => {
  const group = event.target.closest("[data-packet]");
  if (!group) return;
  select(Number(group.dataset.packet) - 1);
  showDetail(selected);
});
const jump = (event) => { view.scrollTop = event.offsetY / map.clientHeight * layout.height - view.clientHeight / 2; };
map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); jump(event); });
map.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
  const typing = event.target === search;
  if (event.key === "Escape") {
    if (!detail.hidden) closeDetail();
    else if (search.value) { search.value = ""; runSearch(); }
    else select(-1);
    if (typing) view.focus();
    event.preventDefault();
    return;
  }
  if (typing) return;
  const inSummary = event.target.closest?.("summary, button");
  const action = {
    j: () => select(Math.min(selected + 1, COUNT - 1)), ArrowDown: () => select(Math.min(selected + 1, COUNT - 1)),
    k: () => select(Math.max(selected - 1, 0)), ArrowUp: () => select(Math.max(selected - 1, 0)),
    Enter: () => { if (selected < 0) select(0); if (selected >= 0) { showDetail(selected); } },
    "/": () => { search.focus(); search.select(); },
    n: () => nextMatch(true), N: () => nextMatch(false),
    Home: () => select(0), End: () => select(COUNT - 1),
    t: toggleTheme, "?": () => document.getElementById("keys").showModal(),
    " ": () => { if (ringCells) toggleRing(); else view.scrollBy({ top: view.clientHeight * 0.85 }); },
  }[event.key];
  if (!action || (inSummary && (event.key === "Enter" || event.key === " "))) return;
  action();
  event.preventDefault();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
let settling = 0;
addEventListener("resize", () => { cancelAnimationFrame(settling); settling = requestAnimationFrame(relayout); });
buildCards();
buildRing();
relayout();
view.focus();
// page.html#7 shows packet 7.
const wanted = Number(location.hash.slice(1));
if (wanted >= 1 && wanted <= COUNT) {
  showDetail(wanted - 1);
  select(wanted - 1);
}
