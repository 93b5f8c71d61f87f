// Add a card, read the guest and list the cards with the generated TypeScript client.
import { CardsApi, Configuration, GuestsApi } from "./typescript-fetch/index.js";

declare const process: { argv: string[] };

const [basePath = "", accessToken = "", guestId = "", centerId = ""] = process.argv.slice(2);
const configuration = new Configuration({ basePath, accessToken });
const cards = new CardsApi(configuration);
const addCardBody = { centerId, redirectUri: "https://shop.example/cards" };
const started = await cards.addCard({ guestId, addCardBody });
const guest = await new GuestsApi(configuration).readGuest({ guestId });
const listed = await cards.listCards({ guestId });
console.log(
  JSON.stringify({
    success: started.success,
    error: started.error,
    first_name: guest.firstName,
    cards: listed.pageInfo.total,
  }),
);
