import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

/** A shop that counts a visitor's clicks, with sessions in cookies or URLs; arguments: a directory and a port. */
public class Sessions {
    static class Shop extends HttpServlet {
        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.setHeader("Cache-Control", "max-age=60");
            if (request.getPathInfo().startsWith("/public")) {
                response.getWriter().print("for everybody");
                return;
            }
            Integer clicks = (Integer) request.getSession().getAttribute("clicks");
            request.getSession().setAttribute("clicks", clicks == null ? 1 : clicks + 1);
            response.getWriter().print(request.getSession().getAttribute("clicks") + " "
                    + response.encodeURL("/shop" + request.getPathInfo()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("").setLevel(Level.SEVERE);
        String base = new File(arguments[0]).getAbsolutePath();
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(base);
        Connector connector = new Connector("HTTP/1.1");
        connector.setProperty("address", "127.0.0.1");
        connector.setPort(Integer.parseInt(arguments[1]));
        tomcat.getService().addConnector(connector);
        Context context = tomcat.addContext("", base);
        Tomcat.addServlet(context, "shop", new Shop());
        context.addServletMappingDecoded("/shop/*", "shop");
        tomcat.start();
        tomcat.getServer().await();
    }
}
