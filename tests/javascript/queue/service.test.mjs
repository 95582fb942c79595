// Operations on the service: properties and statistics.

import assert from "node:assert/strict";
import test from "node:test";

import { QueueServiceClient } from "@azure/storage-queue";

import { newQueue, options, refused, service, texts } from "./clients.mjs";

/** Restores the properties when the test ends. */
async function keepProperties(t) {
    const { cors = [], ...before } = await service.getProperties();
    t.after(() => service.setProperties({ ...before, cors }));
}

test("properties are stored", async (t) => {
    await keepProperties(t);
    const retentionPolicy = { enabled: true, days: 7 };
    const expected = {
        queueAnalyticsLogging: {
            version: "1.0",
            deleteProperty: true,
            read: false,
            write: true,
            retentionPolicy,
        },
        hourMetrics: { version: "1.0", enabled: true, includeAPIs: true, retentionPolicy },
        minuteMetrics: { version: "1.0", enabled: true, includeAPIs: false, retentionPolicy },
        cors: [
            {
                allowedOrigins: "http://example.com,http://example.org",
                allowedMethods: "GET,POST",
                allowedHeaders: "x-ms-meta-*",
                exposedHeaders: "x-ms-*",
                maxAgeInSeconds: 200,
            },
        ],
    };
    assert.equal((await service.setProperties(expected))._response.status, 202);
    const properties = await service.getProperties();
    for (const [name, value] of Object.entries(expected)) assert.deepEqual(properties[name], value, name);

    const preflight = (origin, method) =>
        fetch(`${service.url}/any/messages`, {
            method: "OPTIONS",
            headers: { Origin: origin, "Access-Control-Request-Method": method },
        });
    const allowed = await preflight("http://example.org", "POST");
    assert.equal(allowed.status, 200);
    assert.equal(allowed.headers.get("access-control-allow-origin"), "http://example.org");
    assert.equal((await preflight("http://example.org", "PUT")).status, 403);
    assert.equal((await preflight("http://example.net", "POST")).status, 403);
});

// The secondary endpoint

const secondary = new QueueServiceClient(
    service.url.replace(service.accountName, `${service.accountName}-secondary`),
    service.credential,
    options,
);

test("statistics are available at the secondary endpoint", async () => {
    const { geoReplication } = await secondary.getStatistics();
    assert.equal(geoReplication.status, "live");
    assert.ok(Math.abs(geoReplication.lastSyncOn - Date.now()) < 60_000);
    await refused(service.getStatistics(), 400, "InvalidQueryParameterValue");
});

test("the secondary endpoint is read-only", async (t) => {
    const queue = await newQueue(t);
    await queue.sendMessage("text");
    const other = secondary.getQueueClient(queue.name);
    assert.deepEqual(await texts(other), ["text"]);
    const readOnly = "InsufficientAccountPermissions";
    await refused(other.sendMessage("never"), 403, readOnly);
    await refused(other.clearMessages(), 403, readOnly);
    await refused(other.receiveMessages(), 403, readOnly);
    assert.deepEqual(await texts(queue), ["text"]);
});
