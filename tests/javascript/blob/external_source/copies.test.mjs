// Copies from another, slow server: followed by a poller, cancelled and aborted.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import test from "node:test";

import { newContainer, refused, text } from "../clients.mjs";

const BODY = "x".repeat(1_000_000);
const PORT = Number(process.env.ORIGIN_PORT);
const UNKNOWN = "11111111-2222-3333-4444-555555555555";

/** Starts a server that sends half of the body, and the rest after `goOn()`. */
async function newOrigin(t) {
    let goOn;
    const released = new Promise((resolve) => {
        goOn = resolve;
    });
    const origin = createServer(async (request, response) => {
        response.writeHead(200, { "Content-Length": BODY.length, "Content-Type": "text/origin" });
        response.write(BODY.slice(0, BODY.length / 2));
        await released;
        response.end(BODY.slice(BODY.length / 2));
    });
    origin.listen(PORT, "127.0.0.1");
    await once(origin, "listening");
    t.after(async () => {
        goOn();
        origin.closeAllConnections();
        origin.close();
        await once(origin, "close");
    });
    return { url: `http://127.0.0.1:${PORT}/slow`, goOn };
}

const newCopy = async (t) => (await newContainer(t)).getBlockBlobClient("copy");

test("a poller follows a copy until it ends", async (t) => {
    const copy = await newCopy(t);
    const origin = await newOrigin(t);
    const progress = [];
    const poller = await copy.beginCopyFromURL(origin.url, {
        intervalInMs: 20,
        onProgress: ({ copyProgress }) => progress.push(copyProgress),
    });
    assert.equal(poller.isDone(), false);
    assert.equal((await copy.getProperties()).copyStatus, "pending");
    await refused(copy.upload("other", 5), 409, "PendingCopyOperation");
    await poller.poll();
    origin.goOn();
    const done = await poller.pollUntilDone();
    assert.equal(done.copyStatus, "success");
    assert.ok(progress.length > 0);
    assert.match(progress[0], /^\d+\/1000000$/);
    const down = await copy.download();
    assert.equal(down.contentType, "text/origin");
    assert.equal(await text(down), BODY);
});

test("a copy is aborted", async (t) => {
    const copy = await newCopy(t);
    await copy.upload("old", 3);
    const origin = await newOrigin(t);
    const poller = await copy.beginCopyFromURL(origin.url, { intervalInMs: 20 });
    const { copyId } = poller.getOperationState();
    await refused(copy.abortCopyFromURL(UNKNOWN), 409, "CopyIdMismatch");
    const aborted = await copy.abortCopyFromURL(copyId);
    assert.equal(aborted._response.status, 204);
    const properties = await copy.getProperties();
    assert.deepEqual([properties.copyStatus, properties.contentLength], ["aborted", 0]);
    await refused(copy.abortCopyFromURL(copyId), 409, "NoPendingCopyOperation");
    await copy.upload("new", 3);
    assert.equal(await text(await copy.download()), "new");
});

test("a poller is cancelled", async (t) => {
    const copy = await newCopy(t);
    const origin = await newOrigin(t);
    const poller = await copy.beginCopyFromURL(origin.url, { intervalInMs: 20 });
    await poller.cancelOperation();
    assert.equal((await copy.getProperties()).copyStatus, "aborted");
    assert.equal(poller.isStopped(), true);
});
