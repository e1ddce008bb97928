//! A headless Chromium to look at pages with, driven over its debugging pipe.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// A browser with one page; it ends when this is dropped.
pub(crate) struct Browser {
    child: Arc<Mutex<Child>>,
    commands: File,
    answers: BufReader<File>,
    session: String,
    calls: u64,
    /// Pages that were loaded.
    pub(crate) loads: u64,
    /// What the page complained about.
    pub(crate) complaints: Vec<String>,
    folder: PathBuf,
    // Dropped with the browser: then the watchdog lies down.
    _watchdog: mpsc::Sender<()>,
}

/// A browser that has not answered by then never will.
const LIMIT: Duration = Duration::from_secs(240);

impl Browser {
    /// Starts Chromium with an empty profile, without any network of its own accord.
    pub(crate) fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("roce-lab-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("profile")).expect("a folder for the browser");
        let pipes = ["in", "out"].map(|name| folder.join(name));
        let made = Command::new("mkfifo").args(&pipes).status().expect("mkfifo runs");
        assert!(made.success());
        // The browser reads descriptor 3 and writes 4.
        let script = r#"exec chromium --headless --no-sandbox --disable-gpu --disable-quic \
            --no-first-run --disable-background-networking --disable-component-update \
            --disable-sync --disable-dev-shm-usage --hide-scrollbars --window-size=1440,900 \
            --user-data-dir="$0/profile" --remote-debugging-pipe 3<"$0/in" 4>"$0/out""#;
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh runs");
        let child = Arc::new(Mutex::new(child));
        let (watchdog, bites) = mpsc::channel::<()>();
        let prey = Arc::clone(&child);
        std::thread::spawn(move || {
            if bites.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = prey.lock().map(|mut child| child.kill());
            }
        });
        let commands = OpenOptions::new().write(true).open(&pipes[0]).expect("the pipe in");
        let answers = BufReader::new(File::open(&pipes[1]).expect("the pipe out"));
        let mut browser = Self {
            child,
            commands,
            answers,
            session: String::new(),
            calls: 0,
            loads: 0,
            complaints: Vec::new(),
            folder,
            _watchdog: watchdog,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Runtime.enable", "Log.enable", "Page.enable", "Network.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    /// Loads a page from its text and waits until it has run.
    pub(crate) fn open(&mut self, html: &str) {
        let path = self.folder.join("page.html");
        std::fs::write(&path, html).expect("the page can be written");
        self.call("Page.navigate", json!({ "url": format!("file://{}", path.display()) }));
        self.wait_for("Page.loadEventFired");
    }

    /// What a JavaScript expression is worth.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The text of the first element that a selector finds; empty when there is none.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let expression = format!("document.querySelector({selector:?})?.textContent ?? ''");
        self.eval(&expression).as_str().unwrap_or_default().to_owned()
    }

    /// How many elements a selector finds.
    pub(crate) fn count(&mut self, selector: &str) -> u64 {
        let expression = format!("document.querySelectorAll({selector:?}).length");
        self.eval(&expression).as_u64().expect("a number")
    }

    /// Presses and releases a key.
    pub(crate) fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": text }));
        }
    }

    /// Types text, key by key.
    pub(crate) fn write(&mut self, text: &str) {
        text.chars().for_each(|key| self.press(&key.to_string()));
    }

    /// Clicks into the middle of the first element that a selector finds.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.eval(&format!(
            "(() => {{ const box = document.querySelector({selector:?}).getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1
            });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Sets the size of the window in CSS pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": true,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Makes the system prefer light or dark.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Writes a picture of the page when `ROCE_SCREENSHOTS` names a folder.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("ROCE_SCREENSHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = shot["data"].as_str().expect("a picture");
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::create_dir_all(&folder).expect("ROCE_SCREENSHOTS must name a folder");
        let path = Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(path, bytes).expect("a picture can be written");
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).expect("the browser takes commands");
        loop {
            let answer = self.read();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    /// Waits until so many pages were loaded.
    pub(crate) fn wait_for_load(&mut self, loads: u64) {
        while self.loads < loads {
            let message = self.read();
            self.note(&message);
        }
    }

    fn wait_for(&mut self, event: &str) {
        loop {
            let message = self.read();
            self.note(&message);
            if message["method"] == event {
                return;
            }
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.answers.read_until(0, &mut bytes).expect("the browser answers");
        assert_eq!(bytes.pop(), Some(0), "the browser ended: is chromium installed?");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    fn note(&mut self, message: &Value) {
        self.loads += u64::from(message["method"] == "Page.loadEventFired");
        let params = &message["params"];
        let complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => params["exceptionDetails"].to_string(),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                params["entry"].to_string()
            }
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => params.to_string(),
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if url.starts_with("file://") || url.starts_with("data:") {
                    return;
                }
                format!("the page asks for {url}")
            }
            _ => return,
        };
        self.complaints.push(complaint);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Ok(mut child) = self.child.lock() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
