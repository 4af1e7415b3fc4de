import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

/** Two applications, whose servlets tell what Tomcat makes of a target; prints the ports; ends with its input. */
public class Origin {
    static class Teller extends HttpServlet {
        private final String name;

        Teller(String name) {
            this.name = name;
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            String told = String.join(
                    "\n",
                    name,
                    hex(request.getServletContext().getContextPath()),
                    hex(request.getServletPath()),
                    hex(request.getPathInfo()),
                    hex(parameters(request)),
                    hex(request.getRequestURI()));
            byte[] body = told.getBytes(StandardCharsets.US_ASCII);
            response.setContentLength(body.length);
            response.getOutputStream().write(body);
        }

        private static String parameters(HttpServletRequest request) {
            StringBuilder told = new StringBuilder();
            request.getParameterMap().forEach((name, values) -> {
                for (String value : values) {
                    told.append(name).append('=').append(value).append('\n');
                }
            });
            return told.toString();
        }

        private static String hex(String text) {
            return text == null ? "-" : HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    static void connector(Tomcat tomcat, boolean rejectSuspicious, String encodedSolidus) {
        Connector connector = new Connector("HTTP/1.1");
        connector.setProperty("address", "127.0.0.1");
        connector.setProperty("maxKeepAliveRequests", "-1");
        connector.setProperty("maxThreads", "8");
        connector.setPort(0);
        connector.setRejectSuspiciousURIs(rejectSuspicious);
        connector.setEncodedSolidusHandling(encodedSolidus);
        tomcat.getService().addConnector(connector);
    }

    static void application(Tomcat tomcat, String path, String base) {
        Context context = tomcat.addContext(path, base);
        String[][] mappings = {
            {"default", "/"}, {"admin", "/admin/*"}, {"exact", "/foo/bar"}, {"foo", "/foo/*"}, {"do", "*.do"}
        };
        for (String[] mapping : mappings) {
            Tomcat.addServlet(context, mapping[0], new Teller(mapping[0]));
            context.addServletMappingDecoded(mapping[1], mapping[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("").setLevel(Level.SEVERE);
        String base = new File(arguments[0]).getAbsolutePath();
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(base);
        connector(tomcat, false, "reject");
        connector(tomcat, true, "reject");
        connector(tomcat, false, "passthrough");
        connector(tomcat, false, "decode");
        application(tomcat, "", base);
        application(tomcat, "/shop", base);
        tomcat.start();
        for (Connector connector : tomcat.getService().findConnectors()) {
            System.out.print(connector.getLocalPort() + " ");
        }
        System.out.println();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
