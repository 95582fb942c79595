// Conditions on blobs, and races that they decide: one writer succeeds, the others are refused.

import assert from "node:assert/strict";
import test from "node:test";

import {
    HOUR_MS,
    OTHER_ETAG,
    newBlob,
    newContainer,
    refused,
    shifted,
    text,
} from "./clients.mjs";

const WRITES = {
    upload: (blob, conditions) => blob.upload("new", 3, { conditions }),
    setMetadata: (blob, conditions) => blob.setMetadata({ a: "b" }, { conditions }),
    setHTTPHeaders: (blob, conditions) => blob.setHTTPHeaders({}, { conditions }),
    delete: (blob, conditions) => blob.delete({ conditions }),
};
const READS = {
    download: (blob, conditions) => blob.download(0, undefined, { conditions }),
    getProperties: (blob, conditions) => blob.getProperties({ conditions }),
};

const unmet = (request) => refused(request, 412, "ConditionNotMet");
const unchanged = (request) => refused(request, 304, "ConditionNotMet");

for (const [name, write] of Object.entries(WRITES)) {
    test(`${name} if match`, async (t) => {
        const blob = await newBlob(t);
        const { etag } = await blob.getProperties();
        const error = await unmet(write(blob, { ifMatch: OTHER_ETAG }));
        assert.equal(error.details.Condition, "If-Match");
        assert.equal(error.details.Sent, OTHER_ETAG);
        assert.equal(error.details.Current, etag);
        assert.equal((await blob.getProperties()).etag, etag);
        await write(blob, { ifMatch: etag });
    });

    test(`${name} if none match`, async (t) => {
        const blob = await newBlob(t);
        const { etag } = await blob.getProperties();
        await unmet(write(blob, { ifNoneMatch: etag }));
        assert.equal((await blob.getProperties()).etag, etag);
        await write(blob, { ifNoneMatch: OTHER_ETAG });
    });

    test(`${name} by dates`, async (t) => {
        const blob = await newBlob(t);
        const { etag, lastModified } = await blob.getProperties();
        await unmet(write(blob, { ifModifiedSince: lastModified }));
        await unmet(write(blob, { ifUnmodifiedSince: shifted(lastModified, -HOUR_MS) }));
        assert.equal((await blob.getProperties()).etag, etag);
        await write(blob, { ifUnmodifiedSince: lastModified });
    });
}

for (const [name, read] of Object.entries(READS)) {
    test(`${name} by etag`, async (t) => {
        const blob = await newBlob(t);
        const { etag } = await blob.getProperties();
        await read(blob, { ifMatch: etag });
        await read(blob, { ifMatch: "*" });
        await read(blob, { ifNoneMatch: OTHER_ETAG });
        await unmet(read(blob, { ifMatch: OTHER_ETAG }));
        const error = await unchanged(read(blob, { ifNoneMatch: etag }));
        assert.equal(error.details.errorCode, "ConditionNotMet");
    });

    test(`${name} by dates`, async (t) => {
        const blob = await newBlob(t);
        const { lastModified } = await blob.getProperties();
        await read(blob, { ifModifiedSince: shifted(lastModified, -HOUR_MS) });
        await read(blob, { ifUnmodifiedSince: lastModified });
        await unchanged(read(blob, { ifModifiedSince: lastModified }));
        await unmet(read(blob, { ifUnmodifiedSince: shifted(lastModified, -HOUR_MS) }));
    });
}

test("creation only", async (t) => {
    const blob = await newBlob(t);
    const create = () => WRITES.upload(blob, { ifNoneMatch: "*" });
    const error = await refused(create(), 409, "BlobAlreadyExists");
    assert.match(error.message, /^The specified blob already exists\.\nRequestId:/);
    await blob.delete();
    await create();
});

test("replacement only", async (t) => {
    const blob = (await newContainer(t)).getBlockBlobClient("blob");
    await unmet(WRITES.upload(blob, { ifMatch: "*" }));
    await unmet(WRITES.upload(blob, { ifMatch: OTHER_ETAG }));
    assert.equal(await blob.exists(), false);
    await blob.upload("old", 3);
    await WRITES.upload(blob, { ifMatch: "*" });
});

test("conditions on a missing blob", async (t) => {
    const blob = (await newContainer(t)).getBlockBlobClient("missing");
    for (const name of ["setMetadata", "setHTTPHeaders", "delete"]) {
        await refused(WRITES[name](blob, { ifMatch: OTHER_ETAG }), 404, "BlobNotFound");
    }
    for (const read of Object.values(READS)) {
        await refused(read(blob, { ifMatch: OTHER_ETAG }), 404, "BlobNotFound");
    }
});

test("conditions that exclude each other", async (t) => {
    const blob = await newBlob(t);
    const { etag, lastModified } = await blob.getProperties();
    for (const conditions of [
        { ifMatch: etag, ifNoneMatch: OTHER_ETAG },
        { ifModifiedSince: shifted(lastModified, -HOUR_MS), ifUnmodifiedSince: lastModified },
    ]) {
        const write = WRITES.setMetadata(blob, conditions);
        await refused(write, 400, "MultipleConditionHeadersNotSupported");
    }
    assert.equal((await blob.getProperties()).etag, etag);
    await WRITES.setMetadata(blob, { ifMatch: etag, ifUnmodifiedSince: lastModified });
});

test("deleteIfExists does not delete a changed blob", async (t) => {
    const blob = await newBlob(t);
    await unmet(blob.deleteIfExists({ conditions: { ifMatch: OTHER_ETAG } }));
    assert.equal(await blob.exists(), true);
});

test("a range of an old version is refused", async (t) => {
    const blob = await newBlob(t, "one version");
    const { etag } = await blob.download(0, 3);
    await blob.upload("another one", 11);
    await unmet(blob.download(3, 8, { conditions: { ifMatch: etag } }));
});

test("every change has its own etag", async (t) => {
    const blob = await newBlob(t);
    const etags = [(await blob.getProperties()).etag];
    for (let round = 0; round < 10; round += 1) {
        etags.push((await blob.upload("same", 4)).etag);
        etags.push((await blob.setMetadata({ same: "same" })).etag);
        etags.push((await blob.setHTTPHeaders({ blobContentType: "same/same" })).etag);
    }
    assert.equal(new Set(etags).size, etags.length);
});

// Races

const RACERS = 24;

/** Returns the numbers of the attempts that succeed; all others must fail with this error. */
async function race(attempt, statusCode, code) {
    const racers = Array.from({ length: RACERS }, (_, racer) => racer);
    const outcomes = await Promise.allSettled(racers.map(attempt));
    const losses = outcomes.filter(({ status }) => status === "rejected");
    await Promise.all(losses.map((loss) => refused(Promise.reject(loss.reason), statusCode, code)));
    return racers.filter((racer) => outcomes[racer].status === "fulfilled");
}

const uploadOf = (blob, conditions) => (racer) =>
    blob.upload(`racer ${racer}`, `racer ${racer}`.length, { conditions });

test("one of many concurrent creations succeeds", async (t) => {
    const blob = (await newContainer(t)).getBlockBlobClient("blob");
    const winners = await race(uploadOf(blob, { ifNoneMatch: "*" }), 409, "BlobAlreadyExists");
    assert.equal(winners.length, 1);
    assert.equal(await text(await blob.download()), `racer ${winners[0]}`);
});

test("one of many concurrent replacements of a version succeeds", async (t) => {
    const blob = await newBlob(t);
    for (let round = 0; round < 5; round += 1) {
        const { etag } = await blob.getProperties();
        const winners = await race(uploadOf(blob, { ifMatch: etag }), 412, "ConditionNotMet");
        assert.equal(winners.length, 1);
        assert.equal(await text(await blob.download()), `racer ${winners[0]}`);
    }
});

test("one of many concurrent deletions succeeds", async (t) => {
    const blob = await newBlob(t);
    const winners = await race(() => blob.delete(), 404, "BlobNotFound");
    assert.equal(winners.length, 1);
});

test("no increment of a counter is lost", async (t) => {
    const blob = await newBlob(t, "0");
    async function increment() {
        const read = await blob.download();
        const next = String(Number(await text(read)) + 1);
        try {
            await blob.upload(next, next.length, { conditions: { ifMatch: read.etag } });
        } catch (error) {
            if (error.code !== "ConditionNotMet") throw error;
            await increment();
        }
    }
    await Promise.all(Array.from({ length: RACERS }, increment));
    assert.equal(await text(await blob.download()), String(RACERS));
});

test("concurrent readers see one complete version", async (t) => {
    const blob = await newBlob(t, "0".repeat(200_000));
    const writes = Array.from({ length: 10 }, (_, digit) =>
        blob.upload(String(digit).repeat(200_000), 200_000),
    );
    const reads = Array.from({ length: 20 }, async () => text(await blob.download()));
    for (const content of await Promise.all(reads)) {
        assert.equal(content, content[0].repeat(200_000));
    }
    await Promise.all(writes);
});
