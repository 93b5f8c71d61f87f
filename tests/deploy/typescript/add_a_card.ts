// Adds a card with a client whose types come from the OpenAPI document, and reads the session.
import createClient from "openapi-fetch";

import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

const [baseUrl = "", token = "", guest_id = "", center_id = ""] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

const added = await client.POST("/api/v1/guests/{guest_id}/accounts", {
  params: { path: { guest_id } },
  body: { center_id, redirect_uri: "https://shop.example/cards" },
});
if (added.error) throw new Error(added.error.error.message);

const { token_id } = added.data;
const session = await client.GET("/api/v1/guests/{guest_id}/accounts/sessions/{token_id}", {
  params: { path: { guest_id, token_id } },
});
const refused = await client.GET("/api/v1/guests/{guest_id}/accounts/sessions/{token_id}", {
  params: { path: { guest_id, token_id: guest_id } },
});

// An event of a later release, as it would arrive.
const body = '{"type": "account.of_a_later_release", "data": {"card": null, "more": 1}}';
const event: components["schemas"]["EventPayload"] = JSON.parse(body);

console.log(
  JSON.stringify({
    status: session.data?.status,
    refusal: refused.error?.error.message,
    type: refused.response.headers.get("Error-Type"),
    event: event.type,
    card: event.data.card?.last_four ?? null,
  }),
);
