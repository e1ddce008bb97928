// Ring lessons: the chunks of every rank at the time of the selected packet.

const ring = document.getElementById("ring");
const SVG = "http:" + "//www.w3.org/2000/svg"; // a name, not an address: nothing is loaded
let ringNodes = null, ringCells = null, ringWays = null, ringSvg = null, ringPlayer = 0;

function svgElement(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  return made;
}

function buildRing() {
  if (!data.chunks.length) return;
  const ranks = data.hosts.length;
  const chunks = 1 + Math.max(...data.chunks.map((it) => it[2]));
  // On a phone nodes stand close, so that their letters are shown in the size of the page's others.
  const narrow = matchMedia("(max-width: 560px)").matches;
  const cell = narrow ? 38 : 46, width = chunks * cell + 16, height = 58;
  const full = narrow ? [Math.max(366, 2 * width + 26), 186] : [760, 232];
  const middle = [full[0] / 2, full[1] / 2];
  const radius = narrow ? [(full[0] - width) / 2 - 1, 63] : [272, 82];
  ring.hidden = false;
  ringSvg = svgElement("svg", { viewBox: `0 0 ${full[0]} ${full[1]}`, role: "img", "aria-label": "chunks by rank" });
  ringNodes = [];
  ringCells = [];
  ringWays = [];
  for (let r = 0; r < ranks; r++) {
    const angle = (r / ranks) * 2 * Math.PI - Math.PI / 2;
    ringNodes.push([middle[0] + radius[0] * Math.cos(angle), middle[1] + radius[1] * Math.sin(angle)]);
  }
  for (let r = 0; r < ranks; r++) {
    const [a, b] = [ringNodes[r], ringNodes[(r + 1) % ranks]];
    const way = svgElement("path", { class: "way", d: `M${a} L${b}` });
    ringWays.push(way);
    ringSvg.append(way);
  }
  for (let r = 0; r < ranks; r++) {
    const [x, y] = ringNodes[r];
    const node = svgElement("g", { class: "node", transform: `translate(${x - width / 2},${y - height / 2})` });
    node.append(svgElement("rect", { class: "box", width, height, rx: 9 }));
    const name = svgElement("text", { x: 10, y: 18 });
    name.textContent = data.hosts[r];
    node.append(name);
    ringCells.push([]);
    for (let c = 0; c < chunks; c++) {
      const rect = svgElement("rect", { class: "cell", x: 8 + c * cell + 1.5, y: 25, width: cell - 3, height: 26, rx: 5 });
      const text = svgElement("text", { class: "value", x: 8 + c * cell + cell / 2, y: 42.5 });
      node.append(rect, text);
      ringCells[r].push({ rect, text });
    }
    ringSvg.append(node);
  }
  const steer = element("div", "steer");
  const play = element("button", "", "▶ Play");
  play.id = "play";
  play.addEventListener("click", toggleRing);
  steer.append(play, element("span", "", "Each chunk shows the sum so far. Rank r adds 10 to the power of r, so each digit shows whether a rank is included."));
  ring.append(ringSvg, steer);
  showChunks(0);
}

function showChunks(time) {
  if (!ringCells) return;
  const ranks = data.hosts.length;
  for (const [at, rank, chunk, value] of data.chunks) {
    if (at > time) break;
    const { rect, text } = ringCells[rank][chunk];
    const digits = String(Math.round(value)).padStart(ranks, "0");
    const inside = [...digits].filter((digit) => digit !== "0").length;
    text.textContent = digits;
    rect.setAttribute("fill-opacity", inside / ranks * 0.9);
    rect.classList.toggle("whole", inside === ranks);
    rect.classList.toggle("strong", inside * 2 > ranks);
  }
}

/// Moves the packet of a chunk from rank to rank, then shows the chunks at its arrival.
function showInRing(i) {
  if (!ringCells) return;
  const way = ringWays[P.from[i]];
  for (const it of ringWays) it.classList.remove("busy");
  for (const it of ringSvg.querySelectorAll(".token")) it.remove();
  showChunks(P.sent[i]);
  const arrived = P.sent[i] + Math.max(P.took[i], 0);
  const isForward = P.to[i] === (P.from[i] + 1) % data.hosts.length;
  if (!isForward || data.classes[P.class[i]] !== "data" || !/bytes/.test(S[P.facts[i]]) || /^0 bytes/.test(S[P.facts[i]])) {
    showChunks(arrived);
    return;
  }
  way.classList.add("busy");
  const token = svgElement("g", { class: "token" });
  token.append(svgElement("rect", { x: -21, y: -13, width: 42, height: 26, rx: 6 }));
  const text = svgElement("text", { y: 4.5 });
  text.textContent = "#" + P.number[i];
  token.append(text);
  ringSvg.append(token);
  const [a, b] = [ringNodes[P.from[i]], ringNodes[P.to[i]]];
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const start = performance.now();
  const move = (now) => {
    if (!token.isConnected) return;
    const share = still ? 1 : Math.min((now - start) / 550, 1), ease = share * share * (3 - 2 * share);
    token.setAttribute("transform", `translate(${a[0] + (b[0] - a[0]) * ease},${a[1] + (b[1] - a[1]) * ease})`);
    if (share < 1) return requestAnimationFrame(move);
    token.remove();
    showChunks(arrived);
  };
  move(start);
}

function toggleRing() {
  const play = document.getElementById("play");
  if (!play) return;
  if (ringPlayer) {
    clearInterval(ringPlayer);
    ringPlayer = 0;
    play.textContent = "▶ Play";
    return;
  }
  play.textContent = "❚❚ Pause";
  if (selected >= COUNT - 1) select(-1);
  ringPlayer = setInterval(() => {
    if (selected >= COUNT - 1) return toggleRing();
    select(selected + 1, true);
  }, 650);
}
