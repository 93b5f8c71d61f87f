import java.net.URI;
import java.util.UUID;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.CardsApi;
import org.openapitools.client.api.GuestsApi;
import org.openapitools.client.model.AddCardBody;
import org.openapitools.client.model.CardSessionStarted;

/** Add a card, read the guest and list the cards with the generated Java client. */
public class AddACard {
  public static void main(String[] arguments) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(arguments[0]);
    client.setRequestInterceptor(
        request -> request.header("Authorization", "Bearer " + arguments[1]));
    CardsApi cards = new CardsApi(client);
    UUID guest = UUID.fromString(arguments[2]);
    AddCardBody body =
        new AddCardBody()
            .centerId(UUID.fromString(arguments[3]))
            .redirectUri(URI.create("https://shop.example/cards"));
    CardSessionStarted started = cards.addCard(guest, body, null);
    String name = new GuestsApi(client).readGuest(guest).getFirstName();
    int total = cards.listCards(guest, null, null, null).getPageInfo().getTotal();
    System.out.printf(
        "{\"success\": %s, \"error\": %s, \"first_name\": \"%s\", \"cards\": %d}%n",
        started.getSuccess(), started.getError(), name, total);
  }
}
