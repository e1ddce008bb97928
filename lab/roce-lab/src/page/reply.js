// A field for the reply to a question, judged as the command does it.

function replyForm(question, answer) {
  const form = element("form", "reply");
  const label = element("label", "", question.reply + " ");
  const field = element("input");
  field.id = "reply";
  field.autocomplete = "off";
  label.append(field);
  const verdict = element("output", "", "");
  verdict.id = "verdict";
  const check = element("button", "", "Check");
  check.type = "submit";
  form.append(label, check, verdict);
  // Keys of the page are letters of a reply.
  field.addEventListener("keydown", (event) => event.stopPropagation());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const isRight = question.accept.some((accepted) => isReply(accepted, field.value));
    verdict.textContent = isRight ? "Right." : "No. Try again, or look at the answer.";
    verdict.className = isRight ? "right" : "wrong";
    if (isRight) answer.open = true;
    relayout();
  });
  return form;
}

function isReply(accepted, reply) {
  const wanted = numberOf(accepted);
  return Number.isNaN(wanted) ? wordsOf(reply).includes(wordsOf(accepted)) : numberOf(reply) === wanted;
}

// The number that a text begins with; spaces, commas, apostrophes and underscores may group its digits.
function numberOf(text) {
  const digits = text.trim().replace(/(\d)[ ,'_\u00a0](?=\d{3}(?!\d))/g, "$1").match(/^-?[\d.]+/);
  return digits ? Number(digits[0]) : NaN;
}

function wordsOf(text) {
  return " " + text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean).join(" ") + " ";
}
