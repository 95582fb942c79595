// Leases of containers.

import assert from "node:assert/strict";
import test from "node:test";

import { HOUR_MS, newContainer, refused, shifted } from "./clients.mjs";

const FIRST = "11111111-2222-3333-4444-555555555555";
const SECOND = "66666666-7777-8888-9999-000000000000";

async function leaseOf(container) {
    const { leaseStatus, leaseState, leaseDuration } = await container.getProperties();
    return [leaseStatus, leaseState, leaseDuration];
}

test("the actions on a lease", async (t) => {
    const container = await newContainer(t);
    const lease = container.getBlobLeaseClient(FIRST);
    const acquired = await lease.acquireLease(15);
    assert.equal(acquired._response.status, 201);
    assert.equal(acquired.leaseId, FIRST);
    assert.deepEqual(await leaseOf(container), ["locked", "leased", "fixed"]);

    const renewed = await lease.renewLease();
    assert.equal(renewed._response.status, 200);
    assert.equal(renewed.leaseId, FIRST);

    const changed = await lease.changeLease(SECOND);
    assert.equal(changed.leaseId, SECOND);
    assert.equal(lease.leaseId, SECOND);

    await lease.releaseLease();
    assert.deepEqual(await leaseOf(container), ["unlocked", "available", undefined]);
});

test("the ETag of a leased container", async (t) => {
    const container = await newContainer(t);
    const lease = container.getBlobLeaseClient();
    const acquired = await lease.acquireLease(15);
    const shown = await container.getProperties();
    assert.equal(shown.etag, acquired.etag);
    assert.deepEqual(shown.lastModified, acquired.lastModified);
});

test("an infinite lease prevents deletion", async (t) => {
    const container = await newContainer(t);
    const { leaseId } = await container.getBlobLeaseClient().acquireLease(-1);
    assert.deepEqual(await leaseOf(container), ["locked", "leased", "infinite"]);
    await refused(container.delete(), 412, "LeaseIdMissing");
    await refused(container.deleteIfExists(), 412, "LeaseIdMissing");
    await refused(
        container.delete({ conditions: { leaseId: SECOND } }),
        412,
        "LeaseIdMismatchWithContainerOperation",
    );
    await container.uploadBlockBlob("blob", "only deletion needs the lease", 29);
    await container.delete({ conditions: { leaseId } });
    assert.equal(await container.exists(), false);
});

test("a lease id is a condition", async (t) => {
    const container = await newContainer(t);
    const using = (leaseId) => container.getAccessPolicy({ conditions: { leaseId } });
    await refused(using(FIRST), 412, "LeaseNotPresentWithContainerOperation");
    await container.getBlobLeaseClient(FIRST).acquireLease(15);
    await using(FIRST);
    await refused(using(SECOND), 412, "LeaseIdMismatchWithContainerOperation");
    await refused(
        container.setMetadata({ a: "b" }, { conditions: { leaseId: SECOND } }),
        412,
        "LeaseIdMismatchWithContainerOperation",
    );
    await container.setMetadata({ a: "b" }, { conditions: { leaseId: FIRST } });
});

test("a container has one lease", async (t) => {
    const container = await newContainer(t);
    const holder = container.getBlobLeaseClient(FIRST);
    const other = container.getBlobLeaseClient(SECOND);
    await holder.acquireLease(15);
    await refused(other.acquireLease(15), 409, "LeaseAlreadyPresent");
    await refused(other.renewLease(), 409, "LeaseIdMismatchWithLeaseOperation");
    await refused(other.releaseLease(), 409, "LeaseIdMismatchWithLeaseOperation");
    await holder.acquireLease(60);
    await holder.releaseLease();
    await other.acquireLease(15);
});

test("actions without a lease", async (t) => {
    const lease = (await newContainer(t)).getBlobLeaseClient(FIRST);
    await refused(lease.renewLease(), 409, "LeaseIdMismatchWithLeaseOperation");
    await refused(lease.releaseLease(), 409, "LeaseIdMismatchWithLeaseOperation");
    await refused(lease.changeLease(SECOND), 409, "LeaseNotPresentWithLeaseOperation");
    await refused(lease.breakLease(0), 409, "LeaseNotPresentWithLeaseOperation");
});

test("breaking a lease", async (t) => {
    const container = await newContainer(t);
    const lease = container.getBlobLeaseClient(FIRST);
    await lease.acquireLease(60);
    const breaking = await lease.breakLease(30);
    assert.equal(breaking._response.status, 202);
    assert.ok(breaking.leaseTime >= 29 && breaking.leaseTime <= 30);
    assert.deepEqual(await leaseOf(container), ["locked", "breaking", undefined]);
    await refused(lease.acquireLease(15), 409, "LeaseIsBreakingAndCannotBeAcquired");
    await refused(lease.changeLease(SECOND), 409, "LeaseIsBreakingAndCannotBeChanged");
    await refused(lease.renewLease(), 409, "LeaseIsBrokenAndCannotBeRenewed");
    const broken = await lease.breakLease(0);
    assert.equal(broken.leaseTime, 0);
    assert.deepEqual(await leaseOf(container), ["unlocked", "broken", undefined]);
    await container.getBlobLeaseClient(SECOND).acquireLease(15);
});

test("releasing a broken lease", async (t) => {
    const container = await newContainer(t);
    const lease = container.getBlobLeaseClient(FIRST);
    await lease.acquireLease(-1);
    await lease.breakLease(0);
    await lease.releaseLease();
    assert.deepEqual(await leaseOf(container), ["unlocked", "available", undefined]);
});

test("one of many concurrent acquisitions succeeds", async (t) => {
    const container = await newContainer(t);
    const leases = Array.from({ length: 16 }, () => container.getBlobLeaseClient());
    const outcomes = await Promise.allSettled(leases.map((lease) => lease.acquireLease(60)));
    const losses = outcomes.filter(({ status }) => status === "rejected");
    assert.equal(losses.length, leases.length - 1);
    for (const { reason } of losses) assert.equal(reason.code, "LeaseAlreadyPresent");
    const winner = leases[outcomes.findIndex(({ status }) => status === "fulfilled")];
    await winner.renewLease();
});

for (const duration of [0, 14, 61, -2]) {
    test(`a lease cannot last ${duration} seconds`, async (t) => {
        const lease = (await newContainer(t)).getBlobLeaseClient();
        const error = await refused(lease.acquireLease(duration), 400, "InvalidHeaderValue");
        assert.equal(error.details.HeaderName, "x-ms-lease-duration");
        assert.equal(error.details.HeaderValue, String(duration));
    });
}

test("invalid lease ids", async (t) => {
    const lease = (await newContainer(t)).getBlobLeaseClient("not a guid");
    await refused(lease.acquireLease(15), 400, "InvalidHeaderValue");
});

test("date conditions on lease actions", async (t) => {
    const container = await newContainer(t);
    const { lastModified } = await container.getProperties();
    const lease = container.getBlobLeaseClient();
    const later = { conditions: { ifModifiedSince: shifted(lastModified, HOUR_MS) } };
    await refused(lease.acquireLease(15, later), 412, "ConditionNotMet");
    assert.deepEqual(await leaseOf(container), ["unlocked", "available", undefined]);
    const soon = { conditions: { ifUnmodifiedSince: shifted(lastModified, HOUR_MS) } };
    await lease.acquireLease(15, soon);
});
