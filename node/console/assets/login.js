// Sends the token once; from then on the browser has a cookie that no script can read.

const form = document.getElementById("login");
const fault = document.getElementById("fault");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  fault.textContent = "";
  const token = document.getElementById("token").value;
  try {
    const answer = await fetch("/console/api/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token }),
    });
    if (answer.ok) {
      // "#/topics" of the address stays, so a link leads where it was meant to
      location.replace("/console/" + location.hash);
      return;
    }
    fault.textContent = (await answer.json()).error;
  } catch {
    fault.textContent = "The node does not answer. Try again.";
  }
  document.getElementById("token").select();
});
