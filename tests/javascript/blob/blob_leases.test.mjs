// Leases of blobs: actions, and requests with and without the lease id.

import assert from "node:assert/strict";
import test from "node:test";

import { OTHER_ETAG, collect, newBlob, newContainer, refused, service, text } from "./clients.mjs";

const FIRST = "11111111-2222-3333-4444-555555555555";
const SECOND = "66666666-7777-8888-9999-000000000000";

async function leaseOf(blob) {
    const { leaseStatus, leaseState, leaseDuration } = await blob.getProperties();
    return [leaseStatus, leaseState, leaseDuration];
}

test("the actions on a lease", async (t) => {
    const blob = await newBlob(t);
    const { etag } = await blob.getProperties();
    const lease = blob.getBlobLeaseClient(FIRST);
    const acquired = await lease.acquireLease(15);
    assert.equal(acquired._response.status, 201);
    assert.equal(acquired.leaseId, FIRST);
    assert.deepEqual(await leaseOf(blob), ["locked", "leased", "fixed"]);
    assert.equal((await lease.renewLease())._response.status, 200);
    assert.equal((await lease.changeLease(SECOND)).leaseId, SECOND);
    const breaking = await lease.breakLease(10);
    assert.equal(breaking._response.status, 202);
    assert.equal(breaking.leaseTime, 10);
    assert.deepEqual(await leaseOf(blob), ["locked", "breaking", undefined]);
    await lease.releaseLease();
    assert.deepEqual(await leaseOf(blob), ["unlocked", "available", undefined]);
    assert.equal((await blob.getProperties()).etag, etag);
});

test("a listing shows leases", async (t) => {
    const blob = await newBlob(t);
    await blob.getBlobLeaseClient().acquireLease(-1);
    const container = service.getContainerClient(blob.containerName);
    const [{ properties }] = await collect(container.listBlobsFlat());
    assert.equal(properties.leaseStatus, "locked");
    assert.equal(properties.leaseState, "leased");
    assert.equal(properties.leaseDuration, "infinite");
});

// Each is called with conditions that contain the lease id.
const WRITES = {
    "put blob": (blob, conditions) => blob.upload("new", 3, { conditions }),
    "put block": (blob, conditions) => blob.stageBlock("YQ==", "new", 3, { conditions }),
    "put block list": (blob, conditions) => blob.commitBlockList([], { conditions }),
    "set metadata": (blob, conditions) => blob.setMetadata({ a: "b" }, { conditions }),
    "set properties": (blob, conditions) => blob.setHTTPHeaders({}, { conditions }),
    delete: (blob, conditions) => blob.delete({ conditions }),
};
const READS = {
    get: (blob, conditions) => blob.downloadToBuffer(0, undefined, { conditions }),
    "get properties": (blob, conditions) => blob.getProperties({ conditions }),
    "get block list": (blob, conditions) => blob.getBlockList("all", { conditions }),
    snapshot: (blob, conditions) => blob.createSnapshot({ conditions }),
};

for (const [name, write] of Object.entries(WRITES)) {
    test(`writes need the lease id: ${name}`, async (t) => {
        const blob = await newBlob(t);
        const named = { leaseId: FIRST };
        await refused(write(blob, named), 412, "LeaseNotPresentWithBlobOperation");
        const lease = blob.getBlobLeaseClient(FIRST);
        await lease.acquireLease(60);
        await refused(write(blob, {}), 412, "LeaseIdMissing");
        const other = { leaseId: SECOND };
        await refused(write(blob, other), 412, "LeaseIdMismatchWithBlobOperation");
        await lease.breakLease(0);
        await refused(write(blob, named), 412, "LeaseLost");
        assert.deepEqual(await leaseOf(blob), ["unlocked", "broken", undefined]);
        await lease.acquireLease(60);
        await write(blob, named);
    });
}

for (const [name, read] of Object.entries(READS)) {
    test(`reads need no lease id, but a valid one if given: ${name}`, async (t) => {
        const blob = await newBlob(t);
        const named = { leaseId: FIRST };
        await refused(read(blob, named), 412, "LeaseNotPresentWithBlobOperation");
        const lease = blob.getBlobLeaseClient(FIRST);
        await lease.acquireLease(60);
        await read(blob, {});
        await read(blob, named);
        const other = { leaseId: SECOND };
        await refused(read(blob, other), 412, "LeaseIdMismatchWithBlobOperation");
        await lease.breakLease(0);
        await refused(read(blob, named), 412, "LeaseLost");
        await read(blob, {});
        assert.deepEqual(await leaseOf(blob), ["unlocked", "broken", undefined]);
    });
}

test("a write clears a broken lease", async (t) => {
    const blob = await newBlob(t);
    const lease = blob.getBlobLeaseClient(FIRST);
    await lease.acquireLease(60);
    await lease.breakLease(0);
    await refused(lease.renewLease(), 409, "LeaseIsBrokenAndCannotBeRenewed");
    await blob.upload("new", 3);
    assert.deepEqual(await leaseOf(blob), ["unlocked", "available", undefined]);
    await refused(lease.releaseLease(), 409, "LeaseIdMismatchWithLeaseOperation");
});

test("an upload keeps the lease", async (t) => {
    const blob = await newBlob(t);
    const lease = blob.getBlobLeaseClient(FIRST);
    await lease.acquireLease(-1);
    const conditions = { leaseId: FIRST };
    await blob.upload("whole", 5, { conditions });
    await blob.stageBlock("YQ==", "of blocks", 9, { conditions });
    await blob.commitBlockList(["YQ=="], { conditions });
    assert.deepEqual(await leaseOf(blob), ["locked", "leased", "infinite"]);
    assert.equal(await text(await blob.download()), "of blocks");
});

test("actions with other ids, and without a lease", async (t) => {
    const blob = await newBlob(t);
    const first = blob.getBlobLeaseClient(FIRST);
    const second = blob.getBlobLeaseClient(SECOND);
    await refused(first.breakLease(0), 409, "LeaseNotPresentWithLeaseOperation");
    await first.acquireLease(60);
    await refused(second.acquireLease(60), 409, "LeaseAlreadyPresent");
    await refused(second.renewLease(), 409, "LeaseIdMismatchWithLeaseOperation");
    await refused(second.releaseLease(), 409, "LeaseIdMismatchWithLeaseOperation");
    await first.breakLease(30);
    await refused(first.acquireLease(60), 409, "LeaseIsBreakingAndCannotBeAcquired");
    await refused(first.changeLease(SECOND), 409, "LeaseIsBreakingAndCannotBeChanged");
    const missing = (await newContainer(t)).getBlobClient("missing").getBlobLeaseClient(FIRST);
    await refused(missing.acquireLease(60), 404, "BlobNotFound");
});

test("conditions on lease actions", async (t) => {
    const blob = await newBlob(t);
    const { etag } = await blob.getProperties();
    const lease = blob.getBlobLeaseClient(FIRST);
    const stale = { conditions: { ifMatch: OTHER_ETAG } };
    await refused(lease.acquireLease(60, stale), 412, "ConditionNotMet");
    await lease.acquireLease(60, { conditions: { ifMatch: etag } });
    await refused(lease.breakLease(0, stale), 412, "ConditionNotMet");
    assert.deepEqual(await leaseOf(blob), ["locked", "leased", "fixed"]);
});

test("one of many concurrent acquisitions succeeds", async (t) => {
    const blob = await newBlob(t);
    const leases = Array.from({ length: 16 }, () => blob.getBlobLeaseClient());
    const outcomes = await Promise.allSettled(leases.map((lease) => lease.acquireLease(60)));
    const losses = outcomes.filter(({ status }) => status === "rejected");
    assert.equal(losses.length, leases.length - 1);
    for (const { reason } of losses) assert.equal(reason.code, "LeaseAlreadyPresent");
});
