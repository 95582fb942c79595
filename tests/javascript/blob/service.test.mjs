// Operations on the service: listing containers, properties, account information and statistics.

import assert from "node:assert/strict";
import test from "node:test";

import { BlobServiceClient } from "@azure/storage-blob";

import {
    HOUR_MS,
    collect,
    fromNow,
    newBlob,
    options,
    refused,
    remove,
    service,
    unique,
} from "./clients.mjs";

async function newContainers(t, letters) {
    const prefix = unique("listed");
    const names = [...letters].map((letter) => `${prefix}-${letter}`);
    const containers = names.map((name) => service.getContainerClient(name));
    for (const container of containers) {
        await container.create({ metadata: { Its: container.containerName } });
        t.after(() => remove(container));
    }
    return { prefix, names, containers };
}

// Containers

test("listed containers have the same properties as single ones", async (t) => {
    const { prefix, names, containers } = await newContainers(t, "abc");
    await containers[1].setAccessPolicy("blob");
    await containers[2].getBlobLeaseClient().acquireLease(-1);
    const listed = await collect(service.listContainers({ prefix, includeMetadata: true }));
    assert.deepEqual(
        listed.map(({ name }) => name),
        names,
    );
    for (const [index, { metadata, properties }] of listed.entries()) {
        const own = await containers[index].getProperties();
        assert.deepEqual(metadata, { Its: names[index] });
        assert.equal(properties.etag, own.etag);
        assert.deepEqual(properties.lastModified, own.lastModified);
        assert.equal(properties.leaseStatus, own.leaseStatus);
        assert.equal(properties.leaseState, own.leaseState);
        assert.equal(properties.leaseDuration, own.leaseDuration);
        assert.equal(properties.publicAccess, own.blobPublicAccess);
        assert.equal(properties.hasImmutabilityPolicy, false);
        assert.equal(properties.hasLegalHold, false);
    }
});

test("metadata is listed only on request", async (t) => {
    const { prefix } = await newContainers(t, "a");
    const [listed] = await collect(service.listContainers({ prefix }));
    assert.equal(listed.metadata, undefined);
});

test("no containers", async () => {
    assert.deepEqual(await collect(service.listContainers({ prefix: unique("none") })), []);
});

test("paged lists of containers", async (t) => {
    const { prefix, names } = await newContainers(t, "abcde");
    const pages = await collect(service.listContainers({ prefix }).byPage({ maxPageSize: 2 }));
    const namesOf = (page) => page.containerItems.map(({ name }) => name);
    assert.deepEqual(pages.map(namesOf), [names.slice(0, 2), names.slice(2, 4), names.slice(4)]);
    assert.equal(pages[0].prefix, prefix);
    assert.equal(pages[0].maxPageSize, 2);

    const { continuationToken } = pages[0];
    const rest = await collect(service.listContainers({ prefix }).byPage({ continuationToken }));
    assert.deepEqual(rest.flatMap(namesOf), names.slice(2));
});

// Properties

/** Restores the properties when the test ends. */
async function keepProperties(t) {
    const { cors = [], ...before } = await service.getProperties();
    t.after(() => service.setProperties({ ...before, cors }));
}

test("properties are stored", async (t) => {
    await keepProperties(t);
    const expected = {
        blobAnalyticsLogging: {
            version: "1.0",
            deleteProperty: true,
            read: false,
            write: true,
            retentionPolicy: { enabled: true, days: 7 },
        },
        hourMetrics: {
            version: "1.0",
            enabled: true,
            includeAPIs: true,
            retentionPolicy: { enabled: true, days: 3 },
        },
        minuteMetrics: {
            version: "1.0",
            enabled: true,
            includeAPIs: false,
            retentionPolicy: { enabled: true, days: 365 },
        },
        cors: [
            {
                allowedOrigins: "http://example.com,http://example.org",
                allowedMethods: "GET,PUT",
                allowedHeaders: "x-ms-meta-*",
                exposedHeaders: "x-ms-*",
                maxAgeInSeconds: 200,
            },
        ],
    };
    const changed = await service.setProperties(expected);
    assert.equal(changed._response.status, 202);
    const shown = await service.getProperties();
    for (const [name, value] of Object.entries(expected)) assert.deepEqual(shown[name], value, name);
});

test("properties that are left out stay unchanged", async (t) => {
    await keepProperties(t);
    const website = { enabled: true, indexDocument: "index.html", errorDocument404Path: "no.html" };
    await service.setProperties({ staticWebsite: website });
    await service.setProperties({ deleteRetentionPolicy: { enabled: false } });
    const { staticWebsite } = await service.getProperties();
    for (const [name, value] of Object.entries(website)) assert.equal(staticWebsite[name], value);
});

test("invalid properties", async () => {
    const before = await service.getProperties();
    const rule = {
        allowedOrigins: "*",
        allowedMethods: "GET",
        allowedHeaders: "",
        exposedHeaders: "",
        maxAgeInSeconds: 1,
    };
    const tooMany = service.setProperties({ cors: Array(6).fill(rule) });
    await refused(tooMany, 400, "InvalidXmlDocument");
    assert.deepEqual((await service.getProperties()).cors, before.cors);
});

test("CORS rules", async (t) => {
    await keepProperties(t);
    const blob = await newBlob(t);
    const url = await blob.generateSasUrl({ expiresOn: fromNow(HOUR_MS), permissions: "r" });
    const origin = "http://example.com";
    const preflight = (method) =>
        fetch(url, {
            method: "OPTIONS",
            headers: { origin, "access-control-request-method": method },
        });
    assert.equal((await preflight("GET")).status, 403);
    await service.setProperties({
        cors: [
            {
                allowedOrigins: origin,
                allowedMethods: "GET",
                allowedHeaders: "*",
                exposedHeaders: "*",
                maxAgeInSeconds: 60,
            },
        ],
    });
    const allowed = await preflight("GET");
    assert.equal(allowed.status, 200);
    assert.equal(allowed.headers.get("access-control-allow-origin"), origin);
    assert.equal(allowed.headers.get("access-control-max-age"), "60");
    assert.equal((await preflight("PUT")).status, 403);
    const got = await fetch(url, { headers: { origin } });
    assert.equal(await got.text(), "content");
    assert.equal(got.headers.get("access-control-allow-origin"), origin);
});

// Account information and statistics

test("account information", async (t) => {
    const blob = await newBlob(t);
    const container = service.getContainerClient(blob.containerName);
    for (const client of [service, container, blob]) {
        const shown = await client.getAccountInfo();
        assert.ok(shown.skuName);
        assert.equal(shown.accountKind, "StorageV2");
        assert.equal(shown.isHierarchicalNamespaceEnabled, false);
    }
});

test("statistics are available at the secondary endpoint", async () => {
    const url = service.url.replace(service.accountName, `${service.accountName}-secondary`);
    const secondary = new BlobServiceClient(url, service.credential, options);
    const { geoReplication } = await secondary.getStatistics();
    assert.equal(geoReplication.status, "live");
    assert.ok(Math.abs(Date.now() - geoReplication.lastSyncOn) < 60_000);
    await refused(service.getStatistics(), 400, "InvalidQueryParameterValue");
});
