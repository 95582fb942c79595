// Append blobs: appending blocks, position conditions and sealing.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";

import { OTHER_ETAG, contentOf, newBlob, newContainer, refused, service, text } from "./clients.mjs";

const md5Of = (content) => createHash("md5").update(content).digest();

async function newLog(t, settings = {}) {
    const log = (await newContainer(t)).getAppendBlobClient("log");
    await log.create(settings);
    return log;
}

const add = (log, content, settings = {}) =>
    log.appendBlock(content, Buffer.byteLength(content), settings);

test("blocks are appended", async (t) => {
    const log = await newLog(t, {
        blobHTTPHeaders: { blobContentType: "text/plain" },
        metadata: { its: "own" },
        tags: { kind: "log" },
    });
    assert.equal((await log.getProperties()).contentLength, 0);
    const first = await add(log, "one ");
    const second = await add(log, "two ");
    assert.equal(first._response.status, 201);
    assert.deepEqual([first.blobAppendOffset, second.blobAppendOffset], ["0", "4"]);
    assert.deepEqual([first.blobCommittedBlockCount, second.blobCommittedBlockCount], [1, 2]);
    assert.notEqual(first.etag, second.etag);
    const shown = await log.getProperties();
    assert.equal(shown.etag, second.etag);
    assert.equal(shown.blobType, "AppendBlob");
    assert.equal(shown.blobCommittedBlockCount, 2);
    assert.equal(shown.contentType, "text/plain");
    assert.deepEqual(shown.metadata, { its: "own" });
    assert.deepEqual((await log.getTags()).tags, { kind: "log" });
    const down = await log.download();
    assert.equal(down.blobCommittedBlockCount, 2);
    assert.equal(await text(down), "one two ");
    assert.equal(await text(await log.download(2, 4)), "e tw");
});

test("createIfNotExists keeps an existing blob", async (t) => {
    const log = (await newContainer(t)).getAppendBlobClient("log");
    assert.equal((await log.createIfNotExists()).succeeded, true);
    await add(log, "kept");
    const again = await log.createIfNotExists();
    assert.equal(again.succeeded, false);
    assert.equal(again.errorCode, "BlobAlreadyExists");
    assert.equal(await text(await log.download()), "kept");
    await log.create();
    assert.equal((await log.getProperties()).contentLength, 0);
});

test("conditions on position and length", async (t) => {
    const log = await newLog(t);
    await add(log, "12345");
    const conditional = (conditions) => add(log, "67890", { conditions });
    await refused(conditional({ appendPosition: 4 }), 412, "AppendPositionConditionNotMet");
    await refused(conditional({ maxSize: 9 }), 412, "MaxBlobSizeConditionNotMet");
    await refused(conditional({ ifMatch: OTHER_ETAG }), 412, "ConditionNotMet");
    assert.equal((await log.getProperties()).contentLength, 5);
    await conditional({ appendPosition: 5, maxSize: 10 });
    assert.equal(await text(await log.download()), "1234567890");
});

test("one of many concurrent appends at a position succeeds", async (t) => {
    const log = await newLog(t);
    const writers = ["a", "b", "c", "d", "e"].map((mark) =>
        add(log, mark.repeat(3), { conditions: { appendPosition: 0 } }).then(
            () => mark,
            (error) => {
                assert.equal(error.code, "AppendPositionConditionNotMet");
            },
        ),
    );
    const winners = (await Promise.all(writers)).filter((mark) => mark !== undefined);
    assert.equal(winners.length, 1);
    assert.equal(await text(await log.download()), winners[0].repeat(3));
});

test("concurrent appends are complete", async (t) => {
    const log = await newLog(t);
    const lines = Array.from({ length: 40 }, (_, number) => `line ${number}\n`);
    const answers = await Promise.all(lines.map((line) => add(log, line)));
    const content = await text(await log.download());
    lines.forEach((line, number) => {
        const offset = Number(answers[number].blobAppendOffset);
        assert.equal(content.slice(offset, offset + line.length), line);
    });
    assert.equal(content.length, lines.join("").length);
    assert.equal((await log.getProperties()).blobCommittedBlockCount, lines.length);
});

test("checksums of blocks", async (t) => {
    const log = await newLog(t);
    const checked = (settings) => add(log, "123456789", settings);
    const wrong = { transactionalContentMD5: md5Of("another") };
    await refused(checked(wrong), 400, "Md5Mismatch");
    const md5 = await checked({ transactionalContentMD5: md5Of("123456789") });
    assert.deepEqual(Buffer.from(md5.contentMD5), md5Of("123456789"));
    // The check value of CRC-64/NVME, the lowest byte first.
    const crc64 = Buffer.from("8898790a86148bae", "hex");
    const response = await checked({ transactionalContentCrc64: crc64 });
    assert.deepEqual(Buffer.from(response.xMsContentCrc64), crc64);
    const changed = { transactionalContentCrc64: Buffer.from(crc64).reverse() };
    await refused(checked(changed), 400, "Crc64Mismatch");
    assert.equal((await log.getProperties()).blobCommittedBlockCount, 2);
});

test("a sealed blob cannot be appended to", async (t) => {
    const log = await newLog(t);
    await add(log, "content");
    const misplaced = { conditions: { appendPosition: 6 } };
    await refused(log.seal(misplaced), 412, "AppendPositionConditionNotMet");
    const sealed = await log.seal({ conditions: { appendPosition: 7 } });
    assert.equal(sealed._response.status, 200);
    assert.equal(sealed.isSealed, true);
    await refused(add(log, "more"), 409, "BlobIsSealed");
    assert.equal((await log.getProperties()).isSealed, true);
    assert.equal(await text(await log.download()), "content");
    // The request decides whether a copy is sealed.
    const open = service.getContainerClient(log.containerName).getAppendBlobClient("open");
    await (await open.beginCopyFromURL(log.url, { sealBlob: false })).pollUntilDone();
    await add(open, ", more");
    assert.equal(await text(await open.download()), "content, more");
});

test("appending with a lease", async (t) => {
    const log = await newLog(t);
    const lease = log.getBlobLeaseClient();
    const { leaseId } = await lease.acquireLease(15);
    await refused(add(log, "no"), 412, "LeaseIdMissing");
    await add(log, "yes", { conditions: { leaseId } });
    assert.equal(await text(await log.download()), "yes");
});

test("appending needs an append blob", async (t) => {
    const blob = await newBlob(t, "content");
    const container = service.getContainerClient(blob.containerName);
    const log = container.getAppendBlobClient("blob");
    await refused(add(log, "more"), 409, "InvalidBlobType");
    await refused(add(container.getAppendBlobClient("none"), "more"), 404, "BlobNotFound");
    assert.equal(await text(await blob.download()), "content");
});

test("large blocks", async (t) => {
    const log = await newLog(t);
    const content = contentOf(5_000_017);
    await log.appendBlock(content.subarray(0, 4_000_000), 4_000_000);
    await log.appendBlock(content.subarray(4_000_000), 1_000_017);
    assert.deepEqual(await log.downloadToBuffer(), content);
});
