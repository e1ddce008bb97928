// The run without one packet: another address of the same page.

window.addEventListener("hashchange", () => location.reload());
if (variant) {
  const note = element("p", "lost-note", `The network loses packet ${lostNumber}, and this is what the engines do. `);
  const back = element("a", "", "As it was");
  back.href = "#";
  note.append(back);
  document.querySelector("header .words").append(note);
  relayout();
}
