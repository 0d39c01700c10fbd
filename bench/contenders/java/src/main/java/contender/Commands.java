package contender;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/** The lines on standard input; {@code end} and the end of the input are the same. */
final class Commands {
    private final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    /** False when the job is over before it began. */
    boolean ready() {
        Contender.say("{\"event\":\"ready\"}");
        return next();
    }

    void untilEnd() {
        while (next()) {
            // Nothing else is ever said.
        }
    }

    private boolean next() {
        try {
            String line = lines.readLine();
            return line != null && !line.strip().equals("end");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
